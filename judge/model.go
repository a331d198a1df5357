package judge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// ModelConfig sets up the layer that asks a model. Zero fields have the defaults
// that their comments name.
type ModelConfig struct {
	// Completer asks the model. Required. It bounds how long that may take, and it
	// must return soon after its context has ended. Where it has a method
	// Names() []string, a Rubric.Model that is not among them is not configured.
	Completer llm.Completer
	// Memory is what the judge said before. nil: no loop guard, and no refusal is
	// reused.
	Memory Memory
	// Calibrations make a stated confidence one that was measured. nil: all are shrunk.
	Calibrations *Calibrations

	// RefusalLimit is the answer without an approval at which the loop guard steps in:
	// 3; negative is never. RefusalWindow is how long an answer counts: 24 h.
	RefusalLimit  int
	RefusalWindow time.Duration
	// Budget is how many questions a principal may put to the model in BudgetWindow
	// (1 h), each sample being one; 0 is no limit. What is answered without a call is
	// free.
	Budget       int
	BudgetWindow time.Duration

	// Random returns text that nobody can guess, at least 16 letters and digits:
	// crypto/rand. It must be safe for concurrent use.
	Random func() string
	// Stable derives what Random would give from the case itself, so that the same case
	// makes the same request: for cassettes. Whoever knows the case can guess it then.
	Stable bool
	// Now is the clock of the budget, and of cases that have no time: time.Now.
	Now func() time.Time
}

// modelLayer asks a model and computes the outcome from its answer. It is safe for
// concurrent use.
type modelLayer struct {
	ModelConfig
	budget *budget
}

// NewModel returns the layer that asks a model about each criterion. The error names
// what the config lacks.
//
// The layer says approve only when every criterion is met with evidence that stands
// in what the model was shown. What the case can bring about is TroubleUnreadable
// (refusals, answers that contradict themselves), what neither it nor its caller can is
// TroubleUnavailable. What the caller can bring about by asking often or slowly (a spent
// budget or share, a timeout, a limit of the endpoint that it took part in) is no opinion
// but a *BusyError: nothing is decided.
func NewModel(cfg ModelConfig) (Layer, error) {
	if cfg.Completer == nil {
		return nil, errors.New("judge: ModelConfig.Completer is required")
	}
	if cfg.RefusalLimit == 0 {
		cfg.RefusalLimit = 3
	}
	if cfg.RefusalWindow <= 0 {
		cfg.RefusalWindow = 24 * time.Hour
	}
	if cfg.BudgetWindow <= 0 {
		cfg.BudgetWindow = time.Hour
	}
	if cfg.Random == nil {
		cfg.Random = rand.Text
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &modelLayer{cfg, newBudget(cfg.Budget, cfg.BudgetWindow, cfg.Now)}, nil
}

func (*modelLayer) Name() LayerName { return LayerModel }

// Weigh hears what the memory holds of the case before it asks anybody.
func (m *modelLayer) Weigh(ctx context.Context, c Case) (Opinion, error) {
	past, err := m.recallPast(ctx, c)
	if err != nil {
		return Opinion{}, err
	}
	op, err := m.decide(ctx, c, past)
	if err != nil {
		return Opinion{}, err
	}
	if op, err = bindFallback(ctx, m.Memory, c, op, m.Now); err != nil {
		return Opinion{}, err
	}
	op.Model.Refusals, op.Model.RefusalLimit = past.Refusals, past.limit
	return op, nil
}

// decide is Weigh but for the counts of the loop guard. The opinion has a Model of
// its own.
func (m *modelLayer) decide(ctx context.Context, c Case, past past) (Opinion, error) {
	model := Asked{Model: c.Rubric.Model}
	switch {
	case past.tooOften():
		return noJudgement(TroubleLoopGuard, "", model), nil
	case past.refusal != nil:
		return repeatRefusal(*past.refusal), nil
	case !m.hasModel(c.Rubric.Model):
		model.Failure = string(llm.ClassConfig)
		return noJudgement(TroubleNotConfigured, unknownModel(c.Rubric.Model), model), nil
	}
	samples := max(c.Rubric.Samples, 1)
	if ok, frees := m.budget.Spend(c.caller(), samples); !ok {
		return Opinion{}, &BusyError{Message: budgetSpent(c.caller(), frees), RetryAfter: frees}
	}
	ops, busy, err := m.askSamples(ctx, c, samples)
	if err != nil {
		return Opinion{}, err // what was taken stays spent: leaving early must not be free
	}
	free := 0
	for _, op := range ops {
		if op.Model.Calls == 0 {
			free++
		}
	}
	m.budget.giveBack(c.caller(), free)
	// A doubt that a model has voiced binds, whatever kept others from being asked: who is
	// told to come back must not get another try for it.
	if busy != nil && !slices.ContainsFunc(ops, isDoubt) {
		return Opinion{}, busy
	}
	return combineSamples(ops), nil
}

// isDoubt reports whether a model answered and did not approve.
func isDoubt(op Opinion) bool { return op.isJudgement() && op.Outcome != Approve }

// hasModel reports whether a model is configured, as far as can be known.
func (m *modelLayer) hasModel(name string) bool {
	known, ok := m.Completer.(interface{ Names() []string })
	return name == "" || !ok || slices.Contains(known.Names(), name)
}

// askModel asks the model once. The opinion has a Model of its own, with a *BusyError too; with
// another error there is none.
func (m *modelLayer) askModel(ctx context.Context, c Case, sample int) (Opinion, error) {
	marker, nonce := m.newSecrets(c, sample)
	q, err := askQuestion(c, marker, nonce)
	if err != nil {
		return Opinion{}, fmt.Errorf("judge: write the question for the model: %w", err)
	}
	model := Asked{
		Model: c.Rubric.Model, PromptID: q.prompt.ID, PromptDigest: q.prompt.Digest,
		CriteriaDigest: CriteriaDigest(c.Rubric),
	}
	reply, err := m.Completer.Complete(ctx, llm.Request{
		Model:  c.Rubric.Model,
		System: q.prompt.System, User: q.prompt.User, Shape: q.prompt.Shape, Schema: q.prompt.Schema,
		Nonce: nonce, Key: m.cacheKey(c, q, sample), Caller: c.caller(),
		Check: func(a llm.Answer) error { return findContradiction(q, a) },
	})
	if ended := ctx.Err(); ended != nil {
		return Opinion{}, ended // the caller left; that is no trouble of the model's
	}
	if err != nil {
		return failureOpinion(model, q, err), busyWith(err)
	}
	model.recordReply(q, reply)
	if err := findContradiction(q, reply.Answer); err != nil {
		model.Failure = string(llm.ClassInconsistent)
		return noJudgement(TroubleUnreadable, failureMessage(TroubleUnreadable, llm.ClassInconsistent), model), nil
	}
	return m.weighAnswer(q, reply.Answer, model), nil
}

// noJudgement is the opinion of a model layer that has none. A reason of "" is the
// trouble's own.
func noJudgement(t Trouble, reason string, model Asked) Opinion {
	if reason == "" {
		reason = troubleMessage(t)
	}
	return Opinion{
		Layer: LayerModel, Outcome: Escalate, Confidence: noEvidence, Assurance: AssuranceNone,
		Trouble: t, Reasoning: reason, Model: &model,
	}
}

// noModel stands where the model layer would be when none is configured. It
// says so, and policy decides.
type noModel struct {
	memory Memory // nil: nothing was said before
	now    func() time.Time
}

func (noModel) Name() LayerName { return LayerModel }

func (n noModel) Weigh(ctx context.Context, c Case) (Opinion, error) {
	op := noJudgement(TroubleNotConfigured, "", Asked{})
	op.Model = nil // nobody was asked
	return bindFallback(ctx, n.memory, c, op, n.now)
}
