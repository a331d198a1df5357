package judge

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/validators"
)

// fields says whether the data has what the transition requires.
type fields struct{ compiler *validators.Compiler }

func (fields) Name() LayerName { return LayerFields }

func (l fields) Weigh(ctx context.Context, c Case) (Opinion, error) {
	names := c.Checks.RequiredFields
	if len(names) == 0 {
		return Opinion{}, nil
	}
	set, fault, err := compileChecks(ctx, l.compiler, c, LayerFields, validators.Checks{RequiredFields: names})
	if err != nil || fault != nil {
		return orNone(fault), err
	}
	if missing := set.CheckFields(c.Data); len(missing) > 0 {
		return structuralOpinion(LayerFields, missing), nil
	}
	passed := structuralOpinion(LayerFields, nil)
	passed.Reasoning = "The required field is present."
	if len(names) > 1 {
		passed.Reasoning = fmt.Sprintf("All %d required fields are present.", len(names))
	}
	return passed, nil
}

// structuralOpinion is the opinion of a layer that compares documents with the
// definition: certain, and a rejection when there are findings.
func structuralOpinion(layer LayerName, findings []validators.Finding) Opinion {
	op := Opinion{
		Layer: layer, Outcome: Approve, Confidence: 1, Assurance: AssuranceStructural,
		Findings: findings,
	}
	if len(findings) > 0 {
		op.Outcome, op.Reasoning = Reject, joinFindings(findings)
	}
	return op
}
