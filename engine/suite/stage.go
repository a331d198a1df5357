package suite

import (
	"context"
	"sync/atomic"

	"github.com/gavel-mcp/gavel/judge"
)

// stage is the world in which a step is taken: the evidence and the model that the
// file gives. Tests of one file run one after the other.
type stage struct{ step atomic.Pointer[Step] }

// Fetch implements judge.Fetcher with what the file gives.
func (s *stage) Fetch(_ context.Context, r judge.EvidenceRequest, _ bool) (judge.FetchResult, error) {
	if len(r.Missing) > 0 {
		return judge.FetchResult{Failure: judge.FailureArgument, Detail: "A field that it is asked with is missing."}, nil
	}
	content, ok := s.step.Load().Evidence[r.Name]
	if !ok {
		return judge.FetchResult{Failure: judge.FailureUnavailable, Detail: "The test gives no such evidence."}, nil
	}
	return judge.FetchResult{Content: content}, nil
}

type scriptedModel struct{ stage *stage }

func (scriptedModel) Name() judge.LayerName { return judge.LayerModel }

func (m scriptedModel) Weigh(_ context.Context, _ judge.Case) (judge.Opinion, error) {
	answer := m.stage.step.Load().Model
	op := judge.Opinion{Layer: judge.LayerModel, Outcome: judge.Escalate, Confidence: 0.5, Assurance: judge.AssuranceNone}
	switch {
	case answer == nil:
		op.Trouble, op.Reasoning = judge.TroubleNotConfigured, "The test gives no model."
	case answer.Unavailable:
		op.Trouble, op.Reasoning = judge.TroubleUnavailable, "The model of the test does not answer."
	case answer.Outcome == judge.Escalate:
		op.Trouble, op.Reasoning = judge.TroubleCannotAssess, "The model of the test cannot assess this."
	default:
		op.Outcome, op.Confidence, op.Assurance = answer.Outcome, answer.Confidence, judge.AssuranceLLM
		op.Reasoning = "The model of the test says so."
	}
	return op, nil
}
