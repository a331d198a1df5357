package judge

import (
	"context"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/validators"
)

// state says whether the state that would be entered accepts the merged
// context, whether the data writes only what it may, and whether the history has
// what the state demands. It is asked when the target is known: the case has one
// candidate.
type state struct{ compiler *validators.Compiler }

func (state) Name() LayerName { return LayerState }

func (l state) Weigh(ctx context.Context, c Case) (Opinion, error) {
	next := c.Candidates[0]
	entry := validators.Checks{RequiredFields: next.Entry.RequiredFields, Schema: next.Entry.Schema}
	examines := len(entry.RequiredFields) > 0 || len(entry.Schema) > 0
	findings := slices.Concat(c.Forbidden, next.Unmet)
	if !examines && len(findings) == 0 {
		return Opinion{}, nil
	}
	var report validators.SchemaReport
	if examines {
		set, fault, err := compileChecks(ctx, l.compiler, c, LayerState, entry)
		if err != nil {
			return Opinion{}, err
		}
		if fault != nil {
			fault.Findings = append(fault.Findings, findings...)
			return *fault, nil
		}
		findings = append(findings, set.CheckFields(c.Merged)...)
		if report, err = set.CheckSchema(ctx, c.caller(), c.Merged); err != nil {
			return Opinion{}, fmt.Errorf("judge: look at the context: %w", err)
		}
		findings = append(findings, report.Findings...)
	}
	op := structuralOpinion(LayerState, findings)
	op.Fault, op.Sandbox = report.Fault, report.Unhardened
	if op.Outcome == Reject {
		op.Reasoning = joinSentences(fmt.Sprintf("The state %q cannot be entered:", next.Target), op.Reasoning)
	} else {
		op.Reasoning = fmt.Sprintf("The context fits the state %q.", next.Target)
	}
	return op, nil
}
