package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Subjects finds the workflow of a subject, and starts one for a subject that has none.
type Subjects interface {
	FindSubject(ctx context.Context, p engine.Principal, workflow, subject string) (engine.Position, error)
	Start(ctx context.Context, p engine.Principal, req engine.StartRequest) (engine.StartResult, error)
}

// FindInstance finds the instance of a workflow for a subject. If start is set, it starts a missing one. If there is
// no instance for the tool, the refusal explains why; otherwise it is nil.
func FindInstance(ctx context.Context, e Subjects, p engine.Principal, workflow, subject, tool string, start bool) (engine.Position, *Refusal, error) {
	at, err := e.FindSubject(ctx, p, workflow, subject)
	switch {
	case engine.CodeOf(err) != engine.CodeUnknownInstance:
		return at, nil, err
	case !start:
		return at, &Refusal{
			Message: fmt.Sprintf("%s needs a workflow %s for %q, but there is none.", tool, workflow, subject),
			Hint:    fmt.Sprintf("Start it first with workflow.start: type %q, subject %q.", workflow, subject),
		}, nil
	}
	started, err := e.Start(ctx, p, engine.StartRequest{Type: workflow, Subject: subject})
	switch {
	case engine.CodeOf(err) == engine.CodeSubjectTaken: // started by a concurrent call
		at, err = e.FindSubject(ctx, p, workflow, subject)
		return at, nil, err
	case err == nil && started.ID == "":
		return at, &Refusal{
			Message: fmt.Sprintf("%s was not called: the workflow %s could not begin: %s", tool, workflow, ExplainDecision(started.Decision)),
			Hint:    strings.Join(started.Decision.Suggestions, " "), Judged: true,
		}, nil
	default:
		return started.Position, nil, err
	}
}

// ExplainDecision returns the reason for a negative decision.
func ExplainDecision(d engine.Decision) string {
	return cmp.Or(strings.Join(d.Violations, " "), d.Reasoning)
}

// RefuseForeign refuses an instance that the gate does not apply to, and returns nil if the gate applies. A gate does
// not apply to another workflow, to one that no operator defined, or to a version that it does not fit.
func (g Gate) RefuseForeign(at engine.Position, operator bool, d *workflow.Definition) *Refusal {
	switch {
	case !operator && g.Builtin != "":
		return &Refusal{
			Message: fmt.Sprintf("%s belongs to an operator's workflow %s, but %s is not an instance of it.", g.Tool, g.Workflow, at.ID),
			Hint:    "Cancel that workflow, or ask an operator.",
		}
	case at.Workflow != g.Workflow || !operator:
		return &Refusal{
			Message: fmt.Sprintf("%s belongs to the workflow %s, and %s is of the workflow %s.", g.Tool, g.Workflow, at.ID, at.Workflow),
			Hint:    fmt.Sprintf("Send the id of a workflow %s that an operator defined.", g.Workflow),
		}
	case !g.Fits(d):
		return &Refusal{
			Message: fmt.Sprintf("The gate of %s does not fit version %d of the workflow %s, which %s follows.", g.Tool, at.Version, at.Workflow, at.ID),
			Hint:    "Ask an operator to migrate it, or begin another one.",
		}
	}
	return nil
}

// RefuseParked refuses a call that a person must decide first.
func (g Gate) RefuseParked() Refusal {
	return Refusal{
		Message: g.wording().negation() + ": a person has to decide first.",
		Hint:    "Make the same call again once the review is approved; workflow.status shows it.",
	}
}

// RefuseKnown refuses a repeated call, naming the outcome of the first one; "" means that it is still open.
func (g Gate) RefuseKnown(outcome engine.CallOutcome) Refusal {
	not := g.wording().negation() + " again: "
	switch outcome {
	case engine.CallOK, engine.CallError, engine.CallNotSent:
		return Refusal{
			Message: fmt.Sprintf("%sthe same call was made before, and its outcome was %q.", not, outcome),
			Hint:    "Continue from the workflow's current state.",
		}
	case engine.CallUnknown:
		return Refusal{
			Message: not + "it is unknown whether the same call happened.",
			Hint:    "A person has to decide first; workflow.status shows the review.",
		}
	default:
		return Refusal{
			Message: not + "the same call has not been answered yet.",
			Hint:    "Wait for its answer; workflow.status shows until when.",
		}
	}
}

// RefuseCall explains why a call was refused, by the workflow's state or by the judgement. d and may are as for
// Refuse.
func (c Config) RefuseCall(g Gate, d *workflow.Definition, r engine.CallResult, role engine.Role, may func(tool string) bool) Refusal {
	where := c.Refuse(g, d, r.Position, role, may)
	if !g.Allows(r.Position) {
		return where
	}
	if r.Decision.Code == workflow.CodeCallLimit || r.Decision.Code == workflow.CodeCallUnknown { // refused whatever the arguments are
		where.Tools = slices.DeleteFunc(where.Tools, func(tool string) bool { return tool == g.Tool })
	}
	where.Judged = true
	where.Message = fmt.Sprintf("%s: %s", g.wording().negation(), ExplainDecision(r.Decision))
	where.Hint = cmp.Or(strings.Join(r.Decision.Suggestions, " "), "Fix the call, or continue with a possible action.")
	return where
}

// DescribeRefusedMove tells an agent that the move after a call was refused. It returns "" if the move was made, or if no
// move follows.
func DescribeRefusedMove(r engine.SettleResult) string {
	if r.Action == "" || r.Moved {
		return ""
	}
	return fmt.Sprintf("The tool was called, but the action %s that follows was refused: %s The workflow %s stays in %q. Do not call the tool again for it.",
		r.Action, ExplainDecision(r.Decision), r.ID, r.State)
}
