package workflow

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// OnEnter is the chain that starts when an instance enters a state. It is started from the log after
// the move, and acts for the owner of the instance.
type OnEnter struct {
	Chain string
	// Input is the input of the chain, a JSON object, empty if absent. The chain resolves references in it.
	Input json.RawMessage
	// Wait rejects every other action of the state until the run has ended.
	Wait bool
	// OnSuccess and OnFailure are actions of the state that are performed when the run has ended; "" for none.
	OnSuccess, OnFailure string
}

// Gate returns the name under which the run counts as a call of the instance; it differs for each state.
func (o *OnEnter) Gate(state string) string { return "chain." + o.Chain + "@" + state }

// NeedsEnd reports whether the end of the run is recorded in the instance.
func (o *OnEnter) NeedsEnd() bool { return o.Wait || o.OnSuccess != "" || o.OnFailure != "" }

// AwaitedChain returns the chain that must end before anything else moves an instance in this state;
// nil for none. A run that is not settled counts as an open call, so an awaited chain has not begun.
func (d *Definition) AwaitedChain(state string, f Facts) *OnEnter {
	s := d.States[state]
	if s == nil || s.OnEnter == nil || !s.OnEnter.Wait || s.Final || f.CallsMade(s.OnEnter.Gate(state)) > 0 {
		return nil
	}
	return s.OnEnter
}

// describeAwaited returns the finding for an action that must wait for a chain.
func describeAwaited(o *OnEnter, state string) validators.Finding {
	return validators.Finding{
		Code: CodeChainAwaited, Message: AwaitedMessage(o, state), Hint: "Wait until the chain has run.",
	}
}

// AwaitedMessage returns the message that an instance cannot move before its chain has run.
func AwaitedMessage(o *OnEnter, state string) string {
	return "The state " + quoteName(state) + " waits for the chain " + quoteName(o.Chain) + ", which has not run yet."
}

var chainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,58}$`) })

// parseOnEnter reads the chain that a state starts, nil if absent.
func (p *parser) parseOnEnter(o *document.ObjectReader) *OnEnter {
	if !o.Has("onEnter") {
		return nil
	}
	c := o.Object("onEnter")
	p.checkKeys(c, &onEnterObject)
	out := &OnEnter{Chain: c.String("chain"), Wait: c.Bool("wait"), OnSuccess: p.parseLabel(c, "onSuccess"), OnFailure: p.parseLabel(c, "onFailure")}
	if n := c.Value("chain"); n != nil && n.Kind == document.String && !chainName().MatchString(out.Chain) {
		p.rejectValue(n, "the name of a chain is 1 to 58 letters, digits, dots, underscores or hyphens")
	}
	if c.Object("input").Node() != nil {
		out.Input = c.Raw("input")
	}
	return out
}

// visitEntries calls visit for each state that starts a chain, in the order of the document.
func (d *Definition) visitEntries(visit func(path string, s *State)) {
	for _, name := range d.StateNames {
		if s := d.States[name]; s.OnEnter != nil {
			visit(joinPointer(statePath(name), "onEnter"), s)
		}
	}
}

// checkEnterOwner rejects onEnter in an agent's definition: a chain runs with the operator's permissions
// and can call servers that others may not call.
func checkEnterOwner(s *linter) {
	if s.trusted {
		return
	}
	s.visitEntries(func(path string, st *State) {
		s.addIssue(path, "the state %s starts a chain, which only an operator's definition may do; remove it, or have an operator define the workflow", quoteName(st.Name))
	})
}

func checkEnterActions(s *linter) {
	s.visitEntries(func(path string, st *State) {
		check := func(key, action string) {
			switch {
			case action == "" || st.Transitions[action] != nil:
			case st.Final:
				s.addIssue(joinPointer(path, key), "%s is final, so no action follows the chain; remove %q", quoteName(st.Name), key)
			default:
				s.addIssue(joinPointer(path, key), "the state %s has no action %s%s", quoteName(st.Name), quoteName(action), s.suggestKnown(action, st.Actions))
			}
		}
		check("onSuccess", st.OnEnter.OnSuccess)
		check("onFailure", st.OnEnter.OnFailure)
		if st.Final && st.OnEnter.Wait {
			s.addIssue(joinPointer(path, "wait"), "%s is final, so nothing waits for the chain; remove \"wait\"", quoteName(st.Name))
		}
	})
}

// checkEnterCycles finds cycles of states that chains alone would follow endlessly.
func checkEnterCycles(s *linter) {
	if !s.trusted {
		return // another rule rejects them
	}
	next := func(name string) (out []string) {
		st := s.States[name]
		if st == nil || st.OnEnter == nil {
			return nil
		}
		for _, action := range []string{st.OnEnter.OnSuccess, st.OnEnter.OnFailure} {
			if t := st.Transitions[action]; t != nil {
				for _, target := range t.Targets() {
					if target != name { // a state is entered from another one
						out = append(out, target)
					}
				}
			}
		}
		return out
	}
	s.visitEntries(func(path string, st *State) {
		way := []string{st.Name}
		seen := map[string]bool{}
		var follow func(name string) bool
		follow = func(name string) bool {
			for _, target := range next(name) {
				if target == st.Name {
					return true
				}
				if seen[target] {
					continue
				}
				seen[target] = true
				way = append(way, target)
				if follow(target) {
					return true
				}
				way = way[:len(way)-1]
			}
			return false
		}
		if follow(st.Name) {
			quoted := make([]string, 0, len(way)+1)
			for _, name := range append(slices.Clone(way), st.Name) {
				quoted = append(quoted, quoteName(name))
			}
			s.addIssue(path, "the ends of chains lead from %s, without end unless an action is refused", strings.Join(quoted, " to "))
		}
	})
}
