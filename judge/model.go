package judge

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
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

	// Prompt is the edition of the prompt to ask about criteria with where a rubric names none, one of prompts.IDs.
	// "": the newest, or the newest that a calibration is bound to.
	Prompt string

	// RefusalLimit is the answer without an approval at which the loop guard steps in:
	// 3; negative is never. RefusalWindow is how long an answer counts: 24 h.
	RefusalLimit  int
	RefusalWindow time.Duration
	// Budget is how many questions a principal may put to the model in BudgetWindow
	// (1 h), each sample being one; 0 is no limit. What is answered without a call is
	// free.
	Budget       int
	BudgetWindow time.Duration

	// Watch sees the opinions of the layer; nil: nobody does. It must return soon.
	Watch func(Opinion)

	// Random returns text that nobody can guess, at least 16 letters and digits:
	// crypto/rand. It must be safe for concurrent use.
	Random func() string
	// Stable derives what Random would give from the case itself, so that the same case
	// makes the same request: for cassettes. Whoever knows the case can guess it then.
	Stable bool
	// Untimed leaves the time out of what the model is shown: what asks when it happens to be asked
	// cannot be found again in a recording.
	Untimed bool
	// Now is the clock of the budget, and of cases that have no time: time.Now.
	Now func() time.Time
}

// modelLayer asks a model and derives the outcome from its answer. It is safe for
// concurrent use.
type modelLayer struct {
	ModelConfig
	budget *budget
}

// NewModel returns the layer that asks a model about each criterion, or, where the rubric has none,
// one overall question. The error names what the config lacks.
//
// Where there are criteria, the layer says approve only when every one of them is met with
// evidence that stands in what the model was shown. What the case can bring about is TroubleUnreadable
// (refusals, answers that contradict themselves), what neither it nor its caller can is
// TroubleUnavailable. What the caller can bring about by asking often or slowly (a spent
// budget or share, a timeout, a limit of the endpoint that it took part in) is no opinion
// but a *BusyError: nothing is decided.
func NewModel(cfg ModelConfig) (Layer, error) {
	if cfg.Completer == nil {
		return nil, errors.New("judge: ModelConfig.Completer is required")
	}
	if _, err := prompts.Find(cfg.Prompt); cfg.Prompt != "" && err != nil {
		return nil, fmt.Errorf("judge: ModelConfig.Prompt: %w", err)
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

// Asker has the model of a layer asked for something else than a judgement, within the same budget;
// what NewModel returns is one.
type Asker interface {
	// Ask counts as one question of req.Caller. The error is a *BusyError where that one has none left, else
	// that of llm.Completer.
	Ask(ctx context.Context, req llm.Request) (llm.Reply, error)
}

// Ask implements Asker.
func (m *modelLayer) Ask(ctx context.Context, req llm.Request) (llm.Reply, error) {
	if ok, frees := m.budget.Spend(req.Caller, 1); !ok {
		return llm.Reply{}, &BusyError{Message: budgetSpent(req.Caller, frees), RetryAfter: frees}
	}
	reply, err := m.Completer.Complete(ctx, req)
	if fail, ok := errors.AsType[*llm.Error](err); ok && fail.Calls == 0 {
		m.budget.giveBack(req.Caller, 1) // no model was asked
	}
	return reply, err //nolint:wrapcheck // an error of the interface
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
	if m.Watch != nil {
		m.Watch(op)
	}
	return op, nil
}

// decide is Weigh without the counts of the loop guard. The opinion has a Model of its
// own.
func (m *modelLayer) decide(ctx context.Context, c Case, past caseHistory) (Opinion, error) {
	model := ModelRecord{Model: c.Rubric.Model}
	switch {
	case past.limit > 0 && past.Refusals >= past.limit:
		return noJudgement(TroubleLoopGuard, "", model), nil
	case past.refusal != nil:
		return repeatRefusal(*past.refusal), nil
	}
	for _, name := range c.Rubric.Models() {
		if !m.hasModel(name) {
			model.Model, model.Failure = name, string(llm.ClassConfig)
			return noJudgement(TroubleNotConfigured, unknownModel(name), model), nil
		}
	}
	votes := c.Rubric.votes()
	questions := len(c.Rubric.Cascade) + len(votes)
	if ok, frees := m.budget.Spend(c.caller(), questions); !ok {
		return Opinion{}, &BusyError{Message: budgetSpent(c.caller(), frees), RetryAfter: frees}
	}
	began := time.Now()
	stages, accepted, err := m.askCascade(ctx, c, began)
	var ops []Opinion
	var busy *BusyError
	if err == nil && !accepted {
		ops, busy, err = m.askVotes(ctx, c, votes, began)
	}
	if err != nil {
		return Opinion{}, err // what was taken stays spent: leaving early must not be free
	}
	for _, op := range slices.Concat(stages, ops) {
		if op.Model.Calls > 0 {
			questions--
		}
	}
	m.budget.giveBack(c.caller(), questions)
	// A doubt that a model has voiced binds, whatever kept others from being asked: who is
	// told to come back must not get another try for it.
	if busy != nil && !slices.ContainsFunc(ops, isDoubt) {
		return Opinion{}, busy
	}
	return settleVotes(c.Rubric, stages, accepted, ops), nil
}

func isDoubt(op Opinion) bool { return op.isJudgement() && op.Outcome != Approve }

// hasModel reports whether a model is configured, true when the Completer does not
// tell.
func (m *modelLayer) hasModel(name string) bool {
	names := m.Names()
	return name == "" || names == nil || slices.Contains(names, name)
}

// Names are the configured models, the default one first; nil when the Completer does not
// tell.
func (m *modelLayer) Names() []string {
	if c, ok := m.Completer.(interface{ Names() []string }); ok {
		return c.Names()
	}
	return nil
}

// askModel asks once. The opinion has a Model of its own, also with a *BusyError; other
// errors come without one.
func (m *modelLayer) askModel(ctx context.Context, c Case, of askedOf) (Opinion, error) {
	marker, nonce := m.newSecrets(c, of.sample)
	asked := c
	if m.Untimed {
		asked.Now = time.Time{}
	}
	q, err := askQuestion(asked, m.promptFor(c.Rubric), marker, nonce)
	if err != nil {
		return Opinion{}, fmt.Errorf("judge: write the question for the model: %w", err)
	}
	model := ModelRecord{
		Model: c.Rubric.Model, PromptID: q.prompt.ID, PromptDigest: q.prompt.Digest,
		CriteriaDigest: CriteriaDigest(c.Rubric),
	}
	reply, err := m.Completer.Complete(ctx, llm.Request{
		Model: c.Rubric.Model,
		Alone: of.alone, Began: of.began, Share: of.share,
		System: q.prompt.System, User: q.prompt.User, Shape: q.prompt.Shape, Schema: q.prompt.Schema,
		Nonce: nonce, Key: m.cacheKey(c, q, of.sample), Caller: c.caller(),
		Check: func(a llm.Answer) error { return findContradiction(q, a) },
		// The memory keeps what was no approval, until somebody forgets it.
		Keep: func(a llm.Answer) bool { return m.Memory == nil || m.weighAnswer(q, a, model).Outcome == Approve },
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

// editions are the prompts that a rubric can be asked with, the first one where nothing else decides.
// usual is the edition to ask about criteria with where the rubric names none; "" leaves it open.
func (r Rubric) editions(usual string) []string {
	if len(r.Criteria) == 0 {
		return []string{prompts.Overall}
	}
	if given, err := prompts.Find(cmp.Or(r.Prompt, usual)); err == nil {
		return []string{given}
	}
	return prompts.IDs()
}

// promptFor is the edition of the prompt to ask with. A calibration is bound to its prompt: where
// only an earlier one is calibrated, that one is asked.
func (m *modelLayer) promptFor(r Rubric) string {
	editions := r.editions(m.Prompt)
	if len(editions) == 1 || m.Calibrations.Hash() == "" {
		return editions[0]
	}
	model := r.Model
	if names := m.Names(); model == "" && len(names) > 0 {
		model = names[0]
	}
	criteria := CriteriaDigest(r)
	for _, id := range editions {
		if m.Calibrations.applies(model, prompts.Digest(id), criteria) {
			return id
		}
	}
	return editions[0]
}

// noJudgement is the opinion of a model layer without one. An empty reason is the
// trouble's own.
func noJudgement(t Trouble, reason string, model ModelRecord) Opinion {
	if reason == "" {
		reason = troubleMessage(t)
	}
	return Opinion{
		Layer: LayerModel, Outcome: Escalate, Confidence: noEvidence, Assurance: AssuranceNone,
		Trouble: t, Reasoning: reason, Model: &model,
	}
}

// noModel stands in for a model layer when none is configured; policy decides.
type noModel struct {
	memory Memory // nil: nothing was said before
	now    func() time.Time
}

func (noModel) Name() LayerName { return LayerModel }

func (n noModel) Weigh(ctx context.Context, c Case) (Opinion, error) {
	op := noJudgement(TroubleNotConfigured, "", ModelRecord{})
	op.Model = nil // nobody was asked
	return bindFallback(ctx, n.memory, c, op, n.now)
}

// newSecrets returns marker and nonce of one question. Nothing in the case may imitate
// them, so they are random; only for cassettes are they derived from what the model
// sees.
func (m *modelLayer) newSecrets(c Case, sample int) (marker, nonce string) {
	if !m.Stable {
		return m.Random(), m.Random()
	}
	rubric := c.Rubric
	rubric.Content, rubric.Prompt, rubric.Model = ContentFlag, "", "" // the model sees no policy and no name; the prompt it sees
	visible, err := json.Marshal(struct {
		Workflow, State, Action string
		About                   About
		Operation               Operation
		Candidates              []shownCandidate
		Passed                  []LayerName
		Data, Context, Merged   document.JSON
		Evidence                json.RawMessage `json:",omitempty"`
		Call                    json.RawMessage `json:",omitempty"`
		Rubric                  Rubric
		Sample                  int
	}{
		c.Workflow, c.State, c.Action, c.About, c.Operation, listCandidates(c.Candidates), c.Passed,
		c.MaskedData, c.MaskedContext, c.MaskedMerged, listEvidence(c.Fetched), c.showCall(), rubric, sample,
	})
	if err != nil {
		return m.Random(), m.Random() // a document that is no JSON has no stable form
	}
	derive := func(purpose string) string {
		h := sha256.New()
		hashPart(h, purpose)
		hashPart(h, string(visible))
		return base32.StdEncoding.EncodeToString(h.Sum(nil))[:26]
	}
	return derive("marker"), derive("nonce")
}

type shownCandidate struct{ Target, About string }

func listCandidates(all []Candidate) []shownCandidate {
	out := make([]shownCandidate, 0, len(all))
	for _, c := range all {
		out = append(out, shownCandidate{c.Target, c.About})
	}
	return out
}

// cacheKey identifies a question without marker, nonce and time, and the caller it may be
// answered for; "" when it must not be cached.
func (m *modelLayer) cacheKey(c Case, q question, sample int) string {
	if c.Instance == "" || c.Identity == "" {
		return ""
	}
	h := sha256.New()
	steady := []string{q.marker, "\x00marker", q.nonce, "\x00nonce"}
	if q.time != "" { // Identity has the data, in case they say it, too
		steady = append(steady, q.time, "\x00time")
	}
	for _, text := range []string{q.prompt.ID, q.prompt.Digest, q.prompt.System, q.prompt.User, q.prompt.Shape, string(q.prompt.Schema)} {
		hashPart(h, strings.NewReplacer(steady...).Replace(text))
	}
	for _, text := range []string{
		c.Instance, c.Principal, c.Identity, c.DefinitionHash, c.JudgeConfigHash,
		m.Calibrations.Hash(), c.Rubric.Model, strconv.Itoa(sample),
	} {
		hashPart(h, text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// hashPart writes a text with its length, so that no two lists of texts hash alike.
func hashPart(h hash.Hash, text string) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(text)))
	h.Write(size[:])
	h.Write([]byte(text))
}

func (a *ModelRecord) recordReply(q question, r llm.Reply) {
	a.Model = cmp.Or(r.Model, a.Model)
	a.Reported, a.Fingerprint = q.clean(r.Reported, maxLabel), q.clean(r.Fingerprint, maxLabel)
	a.Endpoint, a.Rung = q.clean(r.Endpoint, maxLabel), string(r.Rung)
	a.Lenient, a.Reasked, a.CacheHit, a.Shared = r.Lenient, r.Reasked, r.CacheHit, r.Shared
	a.Calls, a.Breaker = max(r.Calls, 0), r.Breaker
	a.Stated = clampUnit(r.Answer.Confidence)
	a.recordCost(r.Usage, r.CostUSD)
}

func (a *ModelRecord) recordCost(u *llm.Usage, usd *float64) {
	a.CostUSD = usd
	if u != nil {
		a.PromptTokens, a.CompletionTokens, a.CachedTokens = &u.Prompt, &u.Completion, &u.Cached
	}
}

// How long to wait before asking a model again: a busy one at least, and one that is
// unavailable when it does not say.
const (
	busyFor        = time.Second
	unavailableFor = 10 * time.Second
)

// BusyError says that nothing can be decided now, whatever the case is. It matches
// ErrBusy.
type BusyError struct {
	// Message is a sentence for whoever asked.
	Message string
	// RetryAfter is when trying again can help, at the earliest.
	RetryAfter time.Duration
	// Err is what happened, for the operator; nil when Message says it all.
	Err error
}

func (e *BusyError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("judge: %s (%v)", e.Message, e.Err)
	}
	return "judge: " + e.Message
}

// Is makes a BusyError match ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// Unwrap returns what happened.
func (e *BusyError) Unwrap() error { return e.Err }

// busyWith returns the *BusyError for a busy model, nil for other failures.
func busyWith(err error) error {
	var e *llm.Error
	if !errors.As(err, &e) || !e.IsBusy() {
		return nil
	}
	return &BusyError{Message: busyMessage(e), RetryAfter: max(e.RetryAfter, busyFor), Err: err}
}

// failureOpinion is the opinion when a model gave no answer. A failure that is not
// known to come from outside may come from the case.
func failureOpinion(model ModelRecord, q question, err error) Opinion {
	var e *llm.Error
	if !errors.As(err, &e) || e.Class == "" {
		model.Failure, model.Detail = string(llm.ClassMalformed), "the Completer failed with an error that is not its own kind"
		return noJudgement(TroubleUnreadable, "", model)
	}
	model.Model = cmp.Or(e.Model, model.Model)
	model.Endpoint, model.Breaker = q.clean(e.Endpoint, maxLabel), e.Breaker
	model.Calls, model.Failure = max(e.Calls, 0), string(e.Class)
	model.Detail = q.clean(e.Explain(), maxDetail)
	model.recordCost(e.Usage, e.CostUSD)
	trouble := TroubleUnavailable
	switch {
	case e.Class.Traits().FromCase:
		trouble = TroubleUnreadable
	case e.Class == llm.ClassConfig:
		trouble = TroubleNotConfigured
	}
	op := noJudgement(trouble, failureMessage(trouble, e.Class), model)
	op.RetryAfter = max(e.RetryAfter, 0)
	if trouble == TroubleUnavailable && op.RetryAfter == 0 {
		op.RetryAfter = unavailableFor
	}
	return op
}
