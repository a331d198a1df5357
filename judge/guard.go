package judge

import (
	"context"
	"fmt"
	"slices"
	"time"
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

// recallPast asks the memory. That it does not answer must not be a way around the loop
// guard, so then nothing is decided.
func (m *modelLayer) recallPast(ctx context.Context, c Case) (past, error) {
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

// BoundFor is how long a refusal of the model binds the structural fallback.
const BoundFor = 24 * time.Hour

// bindFallback puts the model's recorded refusal in the place of an opinion that would leave the
// decision to the structural fallback: what was refused is not approved because the model
// is away.
func bindFallback(ctx context.Context, memory Memory, c Case, op Opinion, clock func() time.Time) (Opinion, error) {
	if memory == nil || c.Bound == "" || !op.Trouble.isExternal() {
		return op, nil
	}
	now := c.Now
	if now.IsZero() {
		now = clock()
	}
	held, err := memory.Recall(ctx, "", c.Bound, now.Add(-BoundFor))
	switch {
	case err != nil:
		return Opinion{}, fmt.Errorf("judge: recall what was said of this case: %w", err)
	case !isRefusal(held.Opinion):
		return op, nil
	}
	refusal := repeatRefusal(*held.Opinion)
	refusal.Reasoning = joinSentences(troubleMessage(op.Trouble), "It refused this before, and that stands until the data, the context or the evidence changes.", refusal.Reasoning)
	return refusal, nil
}

// tooOften reports whether the loop guard has stepped in already: then the model is
// not asked any more.
func (p past) tooOften() bool { return p.limit > 0 && p.Refusals >= p.limit }

// repeatRefusal is a recorded refusal, said once more. It costs nothing.
func repeatRefusal(op Opinion) Opinion {
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
