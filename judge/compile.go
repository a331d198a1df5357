package judge

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/validators"
)

// ownersFault is the hint of every fault: the caller cannot mend it.
const ownersFault = "This is a fault of the workflow, not of the data; report it to its owner."

// compileChecks gets the Set of one layer's part of the checks. Each layer compiles
// only what it looks at, so that missing fields are refused although a script
// beside them is broken or the sandbox is down.
//
// A definition is compiled before it is accepted, so a problem here is rare (the
// limits of the sandbox changed, or the case was not made from an accepted
// definition). It blocks the move and is told apart from a refusal as a fault.
func compileChecks(ctx context.Context, compiler *validators.Compiler, c Case, layer LayerName, checks validators.Checks) (*validators.Set, *Opinion, error) {
	set, problems, err := compiler.Compile(ctx, c.caller(), c.Owner, checks)
	if err != nil {
		return nil, nil, fmt.Errorf("judge: compile the checks of the %s layer: %w", layer, err)
	}
	if len(problems) == 0 {
		return set, nil, nil
	}
	op := examinerFailed(layer)
	for _, p := range problems {
		op.Findings = append(op.Findings, validators.Finding{
			Code:    CodeValidatorError,
			Message: fmt.Sprintf("A check of this workflow does not compile: %s", p),
			Hint:    ownersFault,
		})
	}
	op.Reasoning = joinFindings(op.Findings)
	return nil, &op, nil
}

// examinerFailed is the opinion of a layer whose examiner failed: certain that the move
// is blocked, and nothing was examined.
func examinerFailed(layer LayerName) Opinion {
	return Opinion{Layer: layer, Outcome: Reject, Confidence: 1, Assurance: AssuranceNone, Fault: true}
}

func orNone(op *Opinion) Opinion {
	if op == nil {
		return Opinion{}
	}
	return *op
}
