package judge

import (
	"context"
	"fmt"
	"slices"
)

// past is what is known of a case before a model is asked.
type past struct {
	Recollection
	// limit is the answer without an approval at which the loop guard steps in, 0 when
	// this case is not counted.
	limit int
	// refusal is the recorded one of the identical case, nil when there is none that
	// can be used.
	refusal *Opinion
}

// recall asks the memory. That it does not answer must not be a way around the loop
// guard, so then nothing is decided.
func (m *modelLayer) recall(ctx context.Context, c Case) (past, error) {
	if m.Memory == nil || c.Guard == "" && c.Identity == "" {
		return past{}, nil
	}
	now := c.Now
	if now.IsZero() {
		now = m.Now()
	}
	held, err := m.Memory.Recall(ctx, c.Guard, c.Identity, now.Add(-m.RefusalWindow))
	if err != nil {
		return past{}, fmt.Errorf("judge: recall what was said of this case: %w", err)
	}
	p := past{Recollection: held}
	p.Refusals = max(p.Refusals, 0)
	if c.Guard == "" {
		p.Refusals = 0
	} else {
		p.limit = max(m.RefusalLimit, 0)
	}
	if c.Identity != "" && isRefusal(held.Opinion) {
		p.refusal = held.Opinion
	}
	return p, nil
}

// tooOften reports whether the loop guard has stepped in already: then the model is
// not asked any more.
func (p past) tooOften() bool { return p.limit > 0 && p.Refusals >= p.limit }

// again is a recorded refusal, said once more. It costs nothing.
func again(op Opinion) Opinion {
	var model Asked
	if op.Model != nil {
		model = *op.Model
	}
	model.Reused, model.Calls = true, 0
	model.Reasked, model.CacheHit, model.Shared = false, false, false
	model.PromptTokens, model.CompletionTokens, model.CachedTokens, model.CostUSD = nil, nil, nil, nil
	model.Breaker = ""
	op.Model, op.Took = &model, 0
	op.Findings, op.Suggestions = slices.Clone(op.Findings), slices.Clone(op.Suggestions)
	return op
}
