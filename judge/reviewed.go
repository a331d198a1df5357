package judge

import (
	"context"
	"fmt"
	"slices"
)

// Review is the word of a person on a case that was escalated.
type Review struct {
	// By is who, Reason why.
	By, Reason string
}

// Approve judges a case anew that a person approves. Every deterministic layer is
// asked again, and what it rejects stays rejected: a person stands in for the model
// and for the policies about it, never for the rules. Content and model are not asked,
// and evidence that policy lets a person do without may be missing.
//
// The verdict rests on AssuranceHuman and is decided ByReviewer, or it is the
// rejection. The error is as in Decide.
func (p *Pipeline) Approve(ctx context.Context, c Case, by Review) (Verdict, error) {
	if err := c.validate(); err != nil {
		return Verdict{}, err
	}
	c.Rubric, c.Passed, c.Fetched = c.Rubric.withDefaults(), nil, nil
	c.Rubric.Mode = Enforce // what waits for a person is not being tried out
	h := hearing{rubric: c.Rubric, reviewPath: c.ReviewPath}
	if len(c.Illegal) == 0 && len(c.Checks.Routes) == 0 {
		h.target = c.Candidates[0].Target
	}
	for _, line := range p.plain {
		for _, layer := range line {
			if _, err := p.weighLayer(ctx, layer, &c, &h); err != nil {
				return Verdict{}, err
			}
		}
		if slices.ContainsFunc(h.opinions, func(op Opinion) bool { return op.Outcome == Reject }) {
			return settle(h), nil
		}
	}
	h.opinions = append(h.opinions, scrubOpinion(Opinion{
		Layer: ByReviewer, Outcome: Approve, Confidence: 1, Assurance: AssuranceHuman, Reasoning: by.describe(),
	}, c.Scrub))
	return byPerson(h), nil
}

// byPerson turns opinions none of which rejects, the last one a person's, into the
// approval. What the layers were less sure of stays visible in the confidence.
func byPerson(h hearing) Verdict {
	v := combineOpinions(h.opinions)
	person := h.opinions[len(h.opinions)-1]
	v.Mode, v.Target = Enforce, h.target
	v.Outcome, v.DecidedBy, v.Reasoning = Approve, ByReviewer, person.Reasoning
	v.Findings, v.RetryAfter = nil, 0
	v.Applied = h.target != ""
	return v
}

// describe is one sentence about a person's approval.
func (r Review) describe() string {
	if r.Reason == "" {
		return fmt.Sprintf("Approved by %s.", r.By)
	}
	return fmt.Sprintf("Approved by %s: %s", r.By, r.Reason)
}
