package eval

import (
	"cmp"

	"github.com/gavel-mcp/gavel/judge"
)

// ResultOf is what a verdict says of a case. A model that could not be asked (no
// endpoint, no recorded answer) is a failure of the instrument; one whose answer could
// not be used is Unreadable, with the outcome that came of it.
func ResultOf(id string, repeat int, v judge.Verdict) Result {
	r := Result{
		Case: id, Repeat: repeat, Outcome: v.Outcome, Code: v.Code, DecidedBy: v.DecidedBy, Assurance: v.Assurance,
		Degraded: v.Degraded, Confidence: v.Confidence, Reasoning: v.Reasoning,
	}
	for _, f := range v.Findings {
		r.Codes = append(r.Codes, f.Code)
	}
	for _, o := range v.Opinions {
		if o.Layer == judge.LayerModel {
			r.recordOpinion(o)
		}
	}
	return r
}

// recordOpinion adds what the model layer did.
func (r *Result) recordOpinion(o judge.Opinion) {
	if a := o.Model; a != nil {
		r.Model, r.PromptDigest, r.CriteriaDigest = a.Model, a.PromptDigest, a.CriteriaDigest
		r.Criteria, r.Rung, r.Lenient, r.Calls, r.CacheHit = a.Criteria, a.Rung, a.Lenient, a.Calls, a.CacheHit
		r.PromptTokens, r.CompletionTokens, r.CostUSD = a.PromptTokens, a.CompletionTokens, a.CostUSD
	}
	switch o.Trouble {
	case judge.TroubleNotConfigured, judge.TroubleUnavailable:
		why := string(o.Trouble)
		if o.Model != nil {
			why, r.Reasoning = cmp.Or(o.Model.Failure, why), cmp.Or(o.Model.Detail, o.Reasoning)
		}
		r.Outcome, r.Failure = "", FailureModel+": "+why
	case judge.TroubleUnreadable:
		r.Unreadable = true
	case judge.TroubleCannotAssess, judge.TroubleLoopGuard: // the verdict says it
	case judge.TroubleNone:
		if o.Outcome == "" || o.Model == nil {
			return
		}
		// What policy does afterwards changes neither: Confidence is that of the verdict.
		approval := r.Confidence
		if o.Outcome != judge.Approve {
			approval = 1 - approval
		}
		r.Approval, r.Stated = &approval, new(o.Model.Stated)
	}
}
