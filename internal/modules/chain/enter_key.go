package chain

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// keyOnEnter is the key of a state that starts a chain.
const keyOnEnter = "onEnter"

// codeAwaited is the code of the finding that an instance waits for a chain.
const codeAwaited = "chain_awaited"

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

// gate returns the name under which the run counts as a call of the instance; it differs for each state.
func (o *OnEnter) gate(state string) string { return "chain." + o.Chain + "@" + state }

// findOnEnter returns the chain that a state starts, nil for none.
func findOnEnter(s *workflow.State) *OnEnter {
	if s == nil {
		return nil
	}
	o, _ := s.Added[keyOnEnter].(*OnEnter)
	return o
}

func init() {
	const label = `{"type":"string","minLength":1,"maxLength":128}`
	workflow.AddStateKey(workflow.StateKey{
		Name:  keyOnEnter,
		Doc:   "The chain that starts when an instance enters this state. Only in definitions owned by an operator.",
		About: "A chain that starts when an instance enters the state, and acts for the instance's owner.",
		Keys: []workflow.ObjectKey{
			{Name: "chain", Doc: "The chain's name.", Shape: `{"type":"string","pattern":"^[A-Za-z0-9._-]{1,58}$"}`},
			{Name: "input", Doc: "Its input. {{instance.id}}, {{instance.workflow}}, {{instance.state}}, {{instance.revision}}, {{instance.owner}} and {{context.KEY}} are replaced by the instance's values on entry; a key whose reference has no value is left out.", Shape: `{"type":"object"}`},
			{Name: "wait", Doc: "true refuses every other action of the state until the run has ended.", Shape: `{"type":"boolean"}`},
			{Name: "onSuccess", Doc: "The action of this state that is performed when the run is done. Fields, schemas and scripts judge it, no model.", Shape: label},
			{Name: "onFailure", Doc: "The action of this state that is performed when the run has failed, was cancelled or could not start.", Shape: label},
		},
		Required: []string{"chain"},
		Parse:    parseOnEnter,
		FindHold: findAwaitedChain,
		Rules: []workflow.Rule{
			workflow.NewRule("chain-not-operator", workflow.SeverityError, "A state starts a chain, and the definition's owner is not an operator.", checkEnterOwner),
			workflow.NewRule("unknown-chain-action", workflow.SeverityError, "onSuccess or onFailure names an action that the state does not have, or a final state waits for its chain.", checkEnterActions),
			workflow.NewRule("chain-cycle", workflow.SeverityWarning, "The ends of chains alone lead back into a state that starts one.", checkEnterCycles),
		},
		Codes: []workflow.CodeInfo{{Code: codeAwaited, Meaning: "The state waits for its chain, which has not run yet.", Do: "Wait until it has."}},
	})
}

func parseOnEnter(r *workflow.StateReader) any {
	o := &OnEnter{Chain: r.String("chain"), Wait: r.Bool("wait"), OnSuccess: r.Label("onSuccess"), OnFailure: r.Label("onFailure")}
	if n := r.Value("chain"); n != nil && n.Kind == document.String && !chainNamePattern().MatchString(o.Chain) {
		r.Reject(n, "the name of a chain is 1 to 58 letters, digits, dots, underscores or hyphens")
	}
	if r.Object("input").Node() != nil {
		o.Input = r.Raw("input")
	}
	return o
}

// findAwaitedChain returns the chain that must end before anything else moves an instance. A run that is
// not settled counts as an open call, so a chain that is awaited here has not begun.
func findAwaitedChain(value any, s *workflow.State, f workflow.Facts) *workflow.Hold {
	o, ok := value.(*OnEnter)
	if !ok || !o.Wait || s.Final || f.CallsMade(o.gate(s.Name)) > 0 {
		return nil
	}
	return &workflow.Hold{Gate: o.gate(s.Name), Finding: validators.Finding{
		Code: codeAwaited, Hint: "Wait until the chain has run.",
		Message: fmt.Sprintf("The state %s waits for the chain %s, which has not run yet.", quoteName(s.Name), quoteName(o.Chain)),
	}}
}

// visitEntries calls visit for each state that starts a chain, in the order of the document.
func visitEntries(d *workflow.Definition, visit func(path string, s *workflow.State, o *OnEnter)) {
	for _, name := range d.StateNames {
		if o := findOnEnter(d.States[name]); o != nil {
			visit(string(document.PointerOf("states", name, keyOnEnter)), d.States[name], o)
		}
	}
}

// checkEnterOwner rejects onEnter in an agent's definition: a chain runs with the operator's permissions
// and can call servers that others may not call.
func checkEnterOwner(d *workflow.Definition, operator bool, report func(path, format string, args ...any)) {
	if operator {
		return
	}
	visitEntries(d, func(path string, s *workflow.State, _ *OnEnter) {
		report(path, "the state %s starts a chain, which only an operator's definition may do; remove it, or have an operator define the workflow", quoteName(s.Name))
	})
}

func checkEnterActions(d *workflow.Definition, _ bool, report func(path, format string, args ...any)) {
	visitEntries(d, func(path string, s *workflow.State, o *OnEnter) {
		check := func(key, action string) {
			switch {
			case action == "" || s.Transitions[action] != nil:
			case s.Final:
				report(path+"/"+key, "%s is final, so no action follows the chain; remove %q", quoteName(s.Name), key)
			default:
				report(path+"/"+key, "the state %s has no action %s%s", quoteName(s.Name), quoteName(action), suggestName(action, s.Actions))
			}
		}
		check("onSuccess", o.OnSuccess)
		check("onFailure", o.OnFailure)
		if s.Final && o.Wait {
			report(path+"/wait", "%s is final, so nothing waits for the chain; remove \"wait\"", quoteName(s.Name))
		}
	})
}

// checkEnterCycles finds cycles of states that chains alone would follow endlessly.
func checkEnterCycles(d *workflow.Definition, operator bool, report func(path, format string, args ...any)) {
	if !operator {
		return // another rule rejects them
	}
	next := func(name string) (out []string) {
		o := findOnEnter(d.States[name])
		if o == nil {
			return nil
		}
		for _, action := range []string{o.OnSuccess, o.OnFailure} {
			if t := d.States[name].Transitions[action]; t != nil {
				for _, target := range t.Targets() {
					if target != name { // a move to the same state does not enter it
						out = append(out, target)
					}
				}
			}
		}
		return out
	}
	visitEntries(d, func(path string, s *workflow.State, _ *OnEnter) {
		way := findWay(s.Name, next, func(target string) bool { return target == s.Name })
		for i, name := range way {
			way[i] = quoteName(name)
		}
		if way != nil {
			report(path, "the ends of chains lead from %s, without end unless an action is refused", strings.Join(way, " to "))
		}
	})
}
