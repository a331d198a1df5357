package engine

import (
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Records keep the bytes that were sealed, with durations in nanoseconds. Results show milliseconds, so they
// have types of their own.

// Opinion is a recorded judge.Opinion as callers see it.
type Opinion struct {
	judge.Opinion
	Recorded   struct{}              `json:"tookNs,omitzero"` // hides the recorded field
	RetryAfter document.Milliseconds `json:"retryAfterMs,omitempty"`
	Took       document.Milliseconds `json:"tookMs"`
}

func viewOpinion(o judge.Opinion) Opinion {
	out := Opinion{Opinion: o, RetryAfter: document.Milliseconds(o.RetryAfter), Took: document.Milliseconds(o.Took)}
	out.Opinion.RetryAfter = 0
	return out
}

// costOf returns the cost of the model's opinion; nil if it is unknown or hidden.
func costOf(opinions []Opinion) *float64 {
	for _, o := range opinions {
		if o.Model != nil {
			return o.Model.CostUSD
		}
	}
	return nil
}

// Evidence is a recorded judge.Evidence as callers see it.
type Evidence struct {
	judge.Evidence
	Recorded struct{}              `json:"tookNs,omitzero"` // hides the recorded field
	Took     document.Milliseconds `json:"tookMs"`
	MaxAge   document.Milliseconds `json:"maxAgeMs,omitempty"`
}

// ViewEvidence returns recorded evidence as callers see it.
func ViewEvidence(all []judge.Evidence) []Evidence {
	if len(all) == 0 {
		return nil
	}
	out := make([]Evidence, len(all))
	for i, e := range all {
		out[i] = Evidence{Evidence: e, Took: document.Milliseconds(e.Took), MaxAge: document.Milliseconds(e.MaxAge)}
		out[i].Evidence.MaxAge = 0
	}
	return out
}
