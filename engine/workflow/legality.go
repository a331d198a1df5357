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

// findIllegal returns why the action is impossible here, nothing when it is possible.
// Role and notBy are reported together; an ended instance and an unknown action alone.
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
	if near := document.Suggest(in.Action, legal); near != "" {
		f.Hint = fmt.Sprintf("Did you mean %s?", quoteName(near))
		return f
	}
	var elsewhere []string
	for _, name := range d.StateNames {
		if d.States[name].Transitions[in.Action] != nil {
			elsewhere = append(elsewhere, name)
		}
	}
	if len(elsewhere) > 0 {
		f.Hint = fmt.Sprintf("It is possible in state %s.", quoteNames(elsewhere))
	}
	return f
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

// maxShown is how much of a name from outside stands in a message.
const maxShown = 80

// quoteName quotes a name for a message, cut and without hidden characters.
func quoteName(name string) string {
	short := script.Clean(name, maxShown)
	if script.Clean(name, maxShown+1) != short {
		short += "…"
	}
	return strconv.Quote(short)
}

// maxList is how many names stand in one message.
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
