package engine

import (
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// What a record holds keeps the bytes that it was sealed with, nanoseconds included. Answers
// show it with these types, as Decision shows a recorded decision; a test holds that no field
// is forgotten.

// Opinion is a recorded judge.Opinion as callers see it.
type Opinion struct {
	Layer       judge.LayerName       `json:"layer"`
	Outcome     judge.Outcome         `json:"outcome"`
	Confidence  float64               `json:"confidence"`
	Assurance   judge.Assurance       `json:"assurance"`
	Reasoning   string                `json:"reasoning,omitempty"`
	Findings    []validators.Finding  `json:"findings,omitempty"`
	Suggestions []string              `json:"suggestions,omitempty"`
	Fault       bool                  `json:"fault,omitempty"`
	Trouble     judge.Trouble         `json:"trouble,omitempty"`
	RetryAfter  document.Milliseconds `json:"retryAfterMs,omitempty"`
	Route       *int                  `json:"route,omitempty"`
	Sandbox     []string              `json:"sandbox,omitempty"`
	Model       *judge.ModelRecord    `json:"model,omitempty"`
	Took        document.Milliseconds `json:"tookMs"`
}

func viewOpinion(o judge.Opinion) Opinion {
	return Opinion{
		Layer: o.Layer, Outcome: o.Outcome, Confidence: o.Confidence, Assurance: o.Assurance, Reasoning: o.Reasoning, Findings: o.Findings,
		Suggestions: o.Suggestions, Fault: o.Fault, Trouble: o.Trouble, RetryAfter: document.Milliseconds(o.RetryAfter), Route: o.Route,
		Sandbox: o.Sandbox, Model: o.Model, Took: document.Milliseconds(o.Took),
	}
}

// costOf is what the model's opinion cost, nil where that is unknown or not shown.
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
	Name       string                `json:"name"`
	Source     string                `json:"source"`
	Required   bool                  `json:"required"`
	Arguments  json.RawMessage       `json:"arguments,omitempty"`
	Failure    judge.EvidenceFailure `json:"failure,omitempty"`
	Detail     string                `json:"detail,omitempty"`
	Digest     string                `json:"digest,omitempty"`
	SameDigest string                `json:"sameDigest,omitempty"`
	Size       int                   `json:"size"`
	Truncated  bool                  `json:"truncated,omitempty"`
	Content    json.RawMessage       `json:"content,omitempty"`
	Tree       string                `json:"tree,omitempty"`
	At         time.Time             `json:"at"`
	Took       document.Milliseconds `json:"tookMs"`
	MaxAge     document.Milliseconds `json:"maxAgeMs,omitempty"`
}

// ViewEvidence is recorded evidence as callers see it.
func ViewEvidence(all []judge.Evidence) []Evidence {
	if len(all) == 0 {
		return nil
	}
	out := make([]Evidence, len(all))
	for i, e := range all {
		out[i] = Evidence{
			Name: e.Name, Source: e.Source, Required: e.Required, Arguments: e.Arguments, Failure: e.Failure, Detail: e.Detail, Digest: e.Digest,
			SameDigest: e.SameDigest, Size: e.Size, Truncated: e.Truncated, Content: e.Content, Tree: e.Tree, At: e.At,
			Took: document.Milliseconds(e.Took), MaxAge: document.Milliseconds(e.MaxAge),
		}
	}
	return out
}
