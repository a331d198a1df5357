package judge

import (
	"context"
	"fmt"
)

// transition says whether the action can happen here at all.
type transition struct{}

func (transition) Name() LayerName { return LayerTransition }

func (transition) Weigh(_ context.Context, c Case) (Opinion, error) {
	op := Opinion{Layer: LayerTransition, Outcome: Approve, Confidence: 1, Assurance: AssuranceNone}
	if len(c.Illegal) > 0 {
		op.Outcome, op.Findings = Reject, c.Illegal
		op.Reasoning = joinFindings(c.Illegal)
		return op, nil
	}
	if c.Operation == Start {
		op.Reasoning = fmt.Sprintf("The workflow %q may be started.", c.Workflow)
	} else {
		op.Reasoning = fmt.Sprintf("The action %q is legal in the state %q.", c.Action, c.State)
	}
	return op, nil
}
