package judge

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Memory holds earlier judgements. The engine implements it over its store and writes it together
// with the decision (see Verdict.Lesson), so that it is as durable as the decisions.
type Memory interface {
	// Recall returns how often since a given time the model refused cases with this guard key, and its
	// opinion of the identical case. Both keys come from the Case; an empty key is never found.
	Recall(ctx context.Context, guard, identity string, since time.Time) (Recollection, error)
}

// Recollection is the content of a Memory for one case.
type Recollection struct {
	// Refusals counts the model's answers that were not approvals.
	Refusals int
	// Opinion is the model's refusal of the identical case, nil if there is none.
	// It is never an approval.
	Opinion *Opinion
}

// Lesson is what a Memory must store about a verdict.
type Lesson struct {
	// Refused counts one more answer that is not an approval. An approval of the model that policy turned
	// down, such as for low confidence, does not count.
	Refused bool
	// Opinion, if not nil, answers the identical case from now on.
	Opinion *Opinion
	// Cleared forgets the refusals: the refused question has been approved, and the move was made. A
	// pre-check clears nothing.
	Cleared bool
}

// Lesson returns what a Memory must store about v. It is empty if no model answered, or if policy
// turned down the model's approval. Unavailable and unreadable answers do not count, nor does a loop
// guard that stopped the question. v.Applied must report whether the move is made: for a pre-check
// it must be false here.
func (v Verdict) Lesson() Lesson {
	i := slices.IndexFunc(v.Opinions, Opinion.isJudgement)
	if i < 0 {
		return Lesson{}
	}
	if v.Outcome == Approve {
		return Lesson{Cleared: v.Applied}
	}
	op := v.Opinions[i]
	switch {
	case op.Outcome == Approve:
		return Lesson{}
	case op.isReused(): // it is stored already
		return Lesson{Refused: true}
	}
	return Lesson{Refused: true, Opinion: &op}
}

// isJudgement reports whether a model approved, rejected, or stated that it could not
// assess the case.
func (op Opinion) isJudgement() bool {
	return op.Layer == LayerModel && op.Outcome != "" && (op.Trouble == TroubleNone || op.Trouble == TroubleCannotAssess)
}

func (op Opinion) isReused() bool { return op.Model != nil && op.Model.Reused }

// isRefusal reports whether an opinion may be reused as an answer of the model: a
// judgement that does not approve.
func isRefusal(op *Opinion) bool {
	if op == nil || !op.isJudgement() || op.Outcome == Approve {
		return false
	}
	sound, err := vetOpinion(LayerModel, *op)
	return err == nil && sound.Trouble == op.Trouble
}

// caseHistory is the memory's content about a case.
type caseHistory struct {
	Recollection
	// limit is the number of refusals at which the loop guard stops a case, 0 if this case is
	// not counted.
	limit int
	// refusal is the recorded refusal of the identical case, nil if there is none that
	// can be used.
	refusal *Opinion
}

// recallPast queries the memory. If that fails, nothing is decided: a failing memory
// must not bypass the loop guard.
func (m *modelLayer) recallPast(ctx context.Context, c Case) (caseHistory, error) {
	if m.Memory == nil || c.Guard == "" && c.Identity == "" {
		return caseHistory{}, nil
	}
	now := c.Now
	if now.IsZero() {
		now = m.Now()
	}
	recalled, err := m.Memory.Recall(ctx, c.Guard, c.Identity, now.Add(-m.RefusalWindow))
	if err != nil {
		return caseHistory{}, fmt.Errorf("judge: recall earlier answers to this case: %w", err)
	}
	p := caseHistory{Recollection: recalled}
	p.Refusals = max(p.Refusals, 0)
	if c.Guard == "" {
		p.Refusals = 0
	} else {
		p.limit = max(m.RefusalLimit, 0)
	}
	if c.Identity != "" && isRefusal(recalled.Opinion) {
		p.refusal = recalled.Opinion
	}
	return p, nil
}

// BoundFor is how long a refusal of the model prevents an approval by the structural fallback.
const BoundFor = 24 * time.Hour

// bindFallback replaces an opinion that would leave the decision to the structural fallback by the model's
// recorded refusal, if there is one. So a rejected case is not approved while the model is unavailable.
func bindFallback(ctx context.Context, memory Memory, c Case, op Opinion, clock func() time.Time) (Opinion, error) {
	if memory == nil || c.Bound == "" || !op.Trouble.isExternal() {
		return op, nil
	}
	now := c.Now
	if now.IsZero() {
		now = clock()
	}
	recalled, err := memory.Recall(ctx, "", c.Bound, now.Add(-BoundFor))
	switch {
	case err != nil:
		return Opinion{}, fmt.Errorf("judge: recall earlier answers to this case: %w", err)
	case !isRefusal(recalled.Opinion):
		return op, nil
	}
	refusal := repeatRefusal(*recalled.Opinion)
	refusal.Reasoning = joinSentences(troubleMessage(op.Trouble), "It rejected this before; the rejection stands until the data, the context or the evidence changes.", refusal.Reasoning)
	return refusal, nil
}

// repeatRefusal returns a recorded refusal at no cost.
func repeatRefusal(op Opinion) Opinion {
	var model ModelRecord
	if op.Model != nil {
		model = *op.Model
	}
	model.Reused, model.Calls = true, 0
	model.Reasked, model.CacheHit, model.Shared = false, false, false
	model.PromptTokens, model.CompletionTokens, model.CachedTokens, model.CostUSD = nil, nil, nil, nil
	model.Breaker, model.Votes = "", nil
	op.Model, op.Took = &model, 0
	op.Findings, op.Suggestions = slices.Clone(op.Findings), slices.Clone(op.Suggestions)
	return op
}
