package judge

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/validators"
)

// schema says whether the data has the shape that the transition demands.
type schema struct{ compiler *validators.Compiler }

func (schema) Name() LayerName { return LayerSchema }

func (l schema) Weigh(ctx context.Context, c Case) (Opinion, error) {
	if len(c.Checks.Schema) == 0 {
		return Opinion{}, nil
	}
	set, fault, err := compileChecks(ctx, l.compiler, c, LayerSchema, validators.Checks{Schema: c.Checks.Schema})
	if err != nil || fault != nil {
		return orNone(fault), err
	}
	report, err := set.CheckSchema(ctx, c.caller(), c.Data)
	if err != nil {
		return Opinion{}, fmt.Errorf("judge: look at the data: %w", err)
	}
	op := structuralOpinion(LayerSchema, report.Findings)
	op.Fault, op.Sandbox = report.Fault, report.Unhardened
	if op.Outcome == Approve {
		op.Reasoning = "The data matches its schema."
	}
	return op, nil
}
