package workflow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// CheckLegality returns why an action is impossible for a caller, and the states in which it is
// possible. It does not check the requirements of the action.
func (d *Definition) CheckLegality(in CaseInput) (illegal []validators.Finding, states []string) {
	if s := d.States[in.State]; s != nil {
		illegal = d.findIllegal(s, in)
	}
	return illegal, d.statesWith(in.Action)
}

// findIllegal returns why the action is impossible in this state, nil if it is possible. Role and notBy are reported
// together; an ended instance or an unknown action is reported alone.
func (d *Definition) findIllegal(s *State, in CaseInput) []validators.Finding {
	if s.Final || in.Ended != "" {
		return []validators.Finding{describeEnded(s, in.Ended)}
	}
	t := s.Transitions[in.Action]
	if t == nil {
		return []validators.Finding{d.describeUnknownAction(s, in)}
	}
	var out []validators.Finding
	if !t.allows(in.Role) {
		out = append(out, describeRoleNotAllowed(t, in.Role))
	}
	for _, before := range t.NotBy {
		if slices.Contains(in.Facts.Performed[before], in.Principal) {
			out = append(out, validators.Finding{
				Code:    CodeNotBy,
				Message: fmt.Sprintf("%s performed %s on this instance and so may not perform %s.", quoteName(in.Principal), quoteName(before), quoteName(t.Action)),
				Hint:    "Leave this action to another principal.",
			})
		}
	}
	return out
}

func describeEnded(s *State, how string) validators.Finding {
	f := validators.Finding{Code: CodeInstanceEnded, Hint: "Start a new instance."}
	if how == "cancelled" {
		f.Message = fmt.Sprintf("The instance was cancelled in state %s; no further action is possible.", quoteName(s.Name))
	} else {
		f.Message = fmt.Sprintf("The instance has reached the final state %s; no further action is possible.", quoteName(s.Name))
	}
	return f
}

func (d *Definition) describeUnknownAction(s *State, in CaseInput) validators.Finding {
	legal := d.NextActions(s.Name, in.Role)
	f := validators.Finding{
		Code:    CodeIllegalAction,
		Message: fmt.Sprintf("The action %s is not possible in state %s; possible: %s.", quoteName(in.Action), quoteName(s.Name), quoteNames(legal)),
	}
	near := document.Suggest(in.Action, legal)
	if states := d.statesWith(in.Action); len(states) > 0 {
		f.Hint = fmt.Sprintf("It is possible in state %s.", quoteNames(states))
	} else if near == "" {
		if near = document.Suggest(in.Action, d.listActions()); near != "" {
			f.Hint = fmt.Sprintf("Did you mean %s? It is possible in state %s.", quoteName(near), quoteNames(d.statesWith(near)))
			return f
		}
	}
	if near != "" {
		f.Hint = strings.TrimSpace(fmt.Sprintf("Did you mean %s? %s", quoteName(near), f.Hint))
	}
	return f
}

// statesWith returns the states in which an action is possible, in the order of the document.
func (d *Definition) statesWith(action string) []string {
	var out []string
	for _, name := range d.StateNames {
		if s := d.States[name]; !s.Final && s.Transitions[action] != nil {
			out = append(out, name)
		}
	}
	return out
}

func describeRoleNotAllowed(t *Transition, role string) validators.Finding {
	roles := t.Roles
	if len(roles) == 0 {
		roles = []string{roleAgent, roleOperator}
	}
	return validators.Finding{
		Code:    CodeRoleNotAllowed,
		Message: fmt.Sprintf("The role %s may not perform the action %s; it is reserved for %s.", quoteName(role), quoteName(t.Action), quoteNames(roles)),
		Hint:    "Leave it to a principal in one of these roles.",
	}
}

// maxShown limits how many characters of an untrusted name a message shows.
const maxShown = 80

// quoteName quotes a name for a message, truncated and without hidden characters.
func quoteName(name string) string {
	short := script.Clean(name, maxShown)
	if script.Clean(name, maxShown+1) != short {
		short += "…"
	}
	return strconv.Quote(short)
}

// maxList limits how many names one message lists.
const maxList = 20

func quoteNames(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	quoted := make([]string, 0, min(len(names), maxList)+1)
	for i, n := range names {
		if i == maxList {
			quoted = append(quoted, fmt.Sprintf("and %d more", len(names)-i))
			break
		}
		quoted = append(quoted, quoteName(n))
	}
	return strings.Join(quoted, ", ")
}

// The roles that a transition's roles may name.
const (
	roleAgent    = "agent"
	roleReviewer = "reviewer"
	roleOperator = "operator"
	roleAuditor  = "auditor"
	// RoleInterpreter is reserved for gavel, in the workflows that record its runs: no credential has this role.
	RoleInterpreter = "interpreter"
)

// Roles are the roles that a transition's roles may name.
var Roles = []string{roleAgent, roleReviewer, roleOperator, roleAuditor}

// NextActions returns the actions that a role may perform in a state, in the order of the document.
// Role "" returns all of them. The result is never nil; it is empty for an unknown or final state.
func (d *Definition) NextActions(state, role string) []string {
	out := []string{}
	s := d.States[state]
	if s == nil || s.Final {
		return out
	}
	for _, a := range s.Actions {
		if t := s.Transitions[a]; t != nil && (role == "" || t.allows(role)) {
			out = append(out, a)
		}
	}
	return out
}

// allows reports whether a role may perform the transition. Without roles, agents and operators
// may; reviewers and auditors may only if the transition names them.
func (t *Transition) allows(role string) bool {
	if len(t.Roles) > 0 {
		return slices.Contains(t.Roles, role)
	}
	return role == roleAgent || role == roleOperator
}

// Targets returns the states that the transition can lead to, without duplicates, in the
// order of the routes.
func (t *Transition) Targets() []string {
	var out []string
	for _, r := range t.Routes {
		if !slices.Contains(out, r.Target) {
			out = append(out, r.Target)
		}
	}
	return out
}

// BlockedStates returns the states ahead of this one that an instance with these facts can never enter:
// mustPassThrough requires a state that was not visited and is no longer reachable. They are in the order of the
// document.
func (d *Definition) BlockedStates(state string, facts Facts) []string {
	ahead := map[string]bool{}
	ways := map[string][]string{}
	for _, e := range d.listEdges() {
		ways[e.from] = append(ways[e.from], e.to)
	}
	for next := ways[state]; len(next) > 0; {
		at := next[0]
		next = next[1:]
		if !ahead[at] {
			ahead[at] = true
			next = slices.Concat(next, ways[at])
		}
	}
	var out []string
	for _, name := range d.StateNames {
		barred := func(before string) bool {
			return before != state && !ahead[before] && !slices.Contains(facts.Visited, before)
		}
		if ahead[name] && slices.ContainsFunc(d.MustPassThrough[name], barred) {
			out = append(out, name)
		}
	}
	return out
}
