package workflow

import (
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Binding names an argument of a call that must equal a field of the context. Both are JSON
// pointers.
type Binding struct{ Argument, Field string }

// CallRule defines when a tool of another server may be called.
type CallRule struct {
	// Gate is the public name of the tool, States those in which it may be called.
	Gate   string
	States []string
	// Actions are performed before or after the call.
	Actions []string
	// Moves is true if one of them is performed before it.
	Moves bool
	// MaxCalls limits the calls per visit to the state; 0 means no limit.
	MaxCalls int
	Bound    []Binding
}

// FindCallObstacles returns the reasons why a call is not possible for an instance in this state,
// with these facts and this context; none if it is possible. ended is as in CaseInput.
func (d *Definition) FindCallObstacles(r CallRule, state, ended string, f Facts, arguments, context document.JSON) []validators.Finding {
	if out := d.findMisfit(r); len(out) > 0 {
		return out
	}
	at := d.States[state]
	switch {
	case at == nil:
		return []validators.Finding{{Code: CodeGateMisfit, Message: fmt.Sprintf("This version of the workflow has no state %s.", quoteName(state)), Hint: tellOperator}}
	case ended != "":
		return []validators.Finding{describeEnded(at, ended)}
	case !slices.Contains(r.States, state):
		return []validators.Finding{{
			Code:    CodeCallState,
			Message: fmt.Sprintf("%s may be called only in the state %s, but the instance is in %s.", r.Gate, quoteNames(r.States), quoteName(state)),
			Hint:    fmt.Sprintf("Bring the instance there first; possible now: %s.", quoteNames(d.NextActions(state, ""))),
		}}
	}
	var out []validators.Finding
	add := func(code, path, hint, message string, args ...any) {
		out = append(out, validators.Finding{Code: code, Path: path, Message: fmt.Sprintf(message, args...), Hint: hint})
	}
	for _, c := range f.Calls {
		switch {
		case c.Gate == r.Gate && !c.IsOpen():
			add(CodeCallUnknown, "", "Wait until a person decides that in the review "+c.Review+".", "It is unknown whether the call %s of %s happened.", c.ID, r.Gate)
		case c.IsOpen() && r.Moves:
			add(CodeCallUnsettled, "", "Wait for its answer.", "The call %s of %s is open.", c.ID, c.Gate)
		}
	}
	if h := d.FindHold(state, f); h != nil && r.Moves && h.Gate != r.Gate {
		out = append(out, h.Finding)
	}
	if made := f.CallsMade(r.Gate); r.MaxCalls > 0 && made >= r.MaxCalls {
		add(CodeCallLimit, "", "To call it again, leave the state and enter it again.",
			"%s has reached its call limit (%d) while the instance is in %s.", r.Gate, r.MaxCalls, quoteName(state))
	}
	for _, b := range r.Bound {
		if message := findUnbound(b, f.Frozen, arguments, context); message != "" {
			add(CodeCallArgument, b.Argument, "Call it with exactly the approved arguments.", "%s", message)
		}
	}
	return out
}

const tellOperator = "Tell the operator that the gate does not match this version of the workflow."

// findMisfit compares a rule with the definition. A rule written for another version must not
// allow anything.
func (d *Definition) findMisfit(r CallRule) (out []validators.Finding) {
	for _, name := range r.States {
		if d.States[name] == nil {
			out = append(out, validators.Finding{Code: CodeGateMisfit, Message: fmt.Sprintf("The gate of %s names the state %s, which this version of the workflow does not have.", r.Gate, quoteName(name)), Hint: tellOperator})
		}
	}
	for _, action := range r.Actions {
		if len(d.statesWith(action)) == 0 {
			out = append(out, validators.Finding{Code: CodeGateMisfit, Message: fmt.Sprintf("The gate of %s performs %s, which this version of the workflow does not have.", r.Gate, quoteName(action)), Hint: tellOperator})
		}
	}
	return out
}

// findUnbound explains why an argument does not equal its bound field; "" if it does.
func findUnbound(b Binding, frozen []string, arguments, context document.JSON) string {
	argument, err := splitPointer(b.Argument)
	field, fieldErr := splitPointer(b.Field)
	if err != nil || fieldErr != nil {
		return fmt.Sprintf("The gate binds %q to %q, which are not both JSON pointers.", b.Argument, b.Field)
	}
	isFrozen := slices.ContainsFunc(frozen, func(pointer string) bool {
		tokens, err := splitPointer(pointer)
		return err == nil && len(tokens) <= len(field) && slices.Equal(tokens, field[:len(tokens)])
	})
	approved := context.At(field...)
	switch {
	case !isFrozen || approved.Kind() == 0:
		return fmt.Sprintf("The argument %s must be the approved %s, but nothing has been approved yet.", b.Argument, b.Field)
	case !arguments.At(argument...).Equal(approved):
		return fmt.Sprintf("The argument %s is not the approved %s.", b.Argument, b.Field)
	}
	return ""
}
