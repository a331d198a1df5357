package judge

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/judge/content"
)

// contentLayer keeps from the model what is known to fool models.
type contentLayer struct{}

func (contentLayer) Name() LayerName { return LayerContent }

func (contentLayer) Weigh(_ context.Context, c Case) (Opinion, error) {
	docs, err := showDocuments(c)
	if err != nil {
		return Opinion{}, fmt.Errorf("content: %w", err)
	}
	op := Opinion{Layer: LayerContent, Outcome: Approve, Confidence: 1, Assurance: AssuranceStructural}
	findings, certain := content.Examine(docs)
	if len(findings) == 0 {
		return op, nil
	}
	op.Outcome, op.Confidence = Escalate, content.Confidence
	if certain {
		op.Outcome = Reject
	}
	op.Findings, op.Reasoning = findings, joinFindings(findings)
	return op, nil
}
