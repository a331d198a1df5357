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

// ModelConfig configures the layer that asks a model. Zero fields get the defaults named in their comments.
type ModelConfig struct {
	// Completer asks the model. Required. It must limit the time of a question, and return soon after its
	// context has ended. If it has a method Names() []string, every Rubric.Model outside that list counts
	// as not configured.
	Completer llm.Completer
	// Memory holds earlier judgements. nil: no loop guard, and no refusal is reused.
	Memory Memory
	// Calibrations map stated confidences to measured ones. nil: all stated confidences are shrunk.
	Calibrations *Calibrations

	// Prompt is the prompt edition for criteria, one of prompts.RecordedIDs, if a rubric names none. "": the newest.
	Prompt string

	// RefusalLimit is the number of answers without an approval at which the loop guard stops a case
	// (default 3; negative: never). RefusalWindow is how long an answer counts (default 24 h).
	RefusalLimit  int
	RefusalWindow time.Duration
	// Budget is how many questions a principal may put to the model in BudgetWindow (default 1 h); each
	// sample counts as one. 0 means no limit. Answers without a call are free.
	Budget       int
	BudgetWindow time.Duration

	// Watch, if not nil, is called with each opinion of the layer. It must return quickly.
	Watch func(Opinion)

	// Random returns an unpredictable text of at least 16 letters and digits (default: from crypto/rand).
	// It must be safe for concurrent use.
	Random func() string
	// Stable derives the results of Random from the case, so that the same case makes the same request:
	// for recorded cassettes. Anyone who knows the case can then predict them.
	Stable bool
	// Untimed leaves the time out of the model's documents: a question with the current time
	// cannot be found in a recording.
	Untimed bool
	// Now is the clock of the budget, and of cases without a time (default time.Now).
	Now func() time.Time
}

// modelLayer asks a model and derives the outcome from its answer. It is safe for
// concurrent use.
type modelLayer struct {
	ModelConfig
	budget *budget
}

// NewModel returns the layer that asks a model about each criterion, or one overall question if the rubric
// has none. The error names the missing or invalid setting.
//
// With criteria, the layer approves only if every one of them is met, with evidence that is present in
// the shown documents. Failures are reported in three ways:
//
//   - TroubleUnreadable: a failure that the case can cause (a refusal, a contradictory answer).
//   - TroubleUnavailable: a failure that neither the case nor its caller can cause.
//   - A *BusyError instead of an opinion, so that nothing is decided: a failure that the caller can cause
//     by asking often or slowly. Examples are a spent budget or share, a timeout, and an endpoint limit
//     that the caller contributed to.
func NewModel(cfg ModelConfig) (Layer, error) {
	if cfg.Completer == nil {
		return nil, errors.New("judge: ModelConfig.Completer is required")
	}
	if _, err := prompts.Find(cfg.Prompt, prompts.RecordedIDs()); cfg.Prompt != "" && err != nil {
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

// Asker uses the model of a layer for something other than a judgement, within the same budget.
// The result of NewModel implements it.
type Asker interface {
	// Ask counts as one question of req.Caller. The error is a *BusyError if the budget is spent,
	// otherwise the error of llm.Completer.
	Ask(ctx context.Context, req llm.Request) (llm.Reply, error)
}

// Ask implements Asker.
func (m *modelLayer) Ask(ctx context.Context, req llm.Request) (llm.Reply, error) {
	if ok, frees := m.budget.Spend(req.Caller, 1); !ok {
		return llm.Reply{}, &BusyError{Message: budgetSpent(req.Caller, frees), RetryAfter: frees}
	}
	reply, err := m.Completer.Complete(ctx, req)
	if fail, ok := errors.AsType[*llm.Error](err); ok && fail.Calls == 0 {
		m.budget.refund(req.Caller, 1) // no model was asked
	}
	return reply, err //nolint:wrapcheck // an error of the interface
}

func (*modelLayer) Name() LayerName { return LayerModel }

// Weigh checks the memory before it asks a model.
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

// decide is Weigh without the counts of the loop guard. The opinion has its own Model record.
func (m *modelLayer) decide(ctx context.Context, c Case, past caseHistory) (Opinion, error) {
	model := ModelRecord{Model: c.Rubric.Model}
	switch {
	case past.limit > 0 && past.Refusals >= past.limit:
		return unjudgedOpinion(TroubleLoopGuard, "", model), nil
	case past.refusal != nil:
		return repeatRefusal(*past.refusal), nil
	}
	models := c.Rubric.Models()
	for _, name := range models {
		if !m.hasModel(name) {
			model.Model, model.Failure = name, string(llm.ClassConfig)
			return unjudgedOpinion(TroubleNotConfigured, unknownModel(name), model), nil
		}
	}
	questions := len(models)
	if ok, frees := m.budget.Spend(c.caller(), questions); !ok {
		return Opinion{}, &BusyError{Message: budgetSpent(c.caller(), frees), RetryAfter: frees}
	}
	var err error
	if c.precedents, err = m.findPrecedents(ctx, c); err != nil {
		return Opinion{}, err
	}
	ops, busy, err := m.askVotes(ctx, c)
	if err != nil {
		return Opinion{}, err // the budget stays spent: leaving early must not be free
	}
	for _, op := range ops {
		if op.Model.Calls > 0 {
			questions--
		}
	}
	m.budget.refund(c.caller(), questions)
	// A model's doubt is binding even if other models were not asked: otherwise a caller could get "busy"
	// and then try again.
	if busy != nil && !slices.ContainsFunc(ops, isDoubt) {
		return Opinion{}, busy
	}
	return settleVotes(c.Rubric, ops), nil
}

func isDoubt(op Opinion) bool { return op.isJudgement() && op.Outcome != Approve }

// hasModel reports whether a model is configured. It returns true if the Completer does not list
// its models.
func (m *modelLayer) hasModel(name string) bool {
	names := m.Names()
	return name == "" || names == nil || slices.Contains(names, name)
}

// Names returns the configured models, the default one first; nil if the Completer does not
// list them.
func (m *modelLayer) Names() []string {
	if c, ok := m.Completer.(interface{ Names() []string }); ok {
		return c.Names()
	}
	return nil
}

// askModel asks one model once. The opinion has its own Model record, even with a *BusyError; other errors
// come without an opinion.
func (m *modelLayer) askModel(ctx context.Context, c Case, of modelQuestion) (Opinion, error) {
	marker, nonce := m.newSecrets(c, of.sample)
	asked := c
	if m.Untimed {
		asked.Now = time.Time{}
	}
	q, err := askQuestion(asked, c.Rubric.edition(m.Prompt), marker, nonce)
	if err != nil {
		return Opinion{}, fmt.Errorf("judge: render the question for the model: %w", err)
	}
	model := ModelRecord{
		Model: c.Rubric.Model, PromptID: q.prompt.ID, PromptDigest: q.prompt.Digest,
		CriteriaDigest: CriteriaDigest(c.Rubric), Exemplars: q.exemplars,
	}
	reply, err := m.Completer.Complete(ctx, llm.Request{
		Model: c.Rubric.Model,
		Alone: of.alone, Began: of.began,
		System: q.prompt.System, User: q.prompt.User, Shape: q.prompt.Shape, Schema: q.prompt.Schema,
		Nonce: nonce, Key: m.cacheKey(c, q, of.sample), Caller: c.caller(),
		Check: func(a llm.Answer) error { return q.findContradiction(a) },
		// The memory keeps answers that are not approvals until they are cleared.
		Keep: func(a llm.Answer) bool { return m.Memory == nil || m.weighAnswer(q, a, model).Outcome == Approve },
	})
	if ended := ctx.Err(); ended != nil {
		return Opinion{}, ended // the caller left, so the model is not at fault
	}
	if err != nil {
		return failureOpinion(model, q, err), asBusyError(err)
	}
	model.recordReply(q, reply)
	if err := q.findContradiction(reply.Answer); err != nil {
		class := llm.ClassInconsistent
		if errors.Is(err, llm.ErrIncomplete) {
			class = llm.ClassIncomplete
		}
		model.Failure, model.Detail = string(class), q.clean(err.Error(), maxDetail)
		return unjudgedOpinion(TroubleUnreadable, failureMessage(TroubleUnreadable, class), model), nil
	}
	return m.weighAnswer(q, reply.Answer, model), nil
}

// edition returns the prompt that a rubric is asked with. usual is the edition for criteria if the rubric names
// none; "" is the newest.
func (r Rubric) edition(usual string) string {
	if len(r.Criteria) == 0 {
		return prompts.Overall
	}
	if given, err := prompts.Find(cmp.Or(r.Prompt, usual), prompts.RecordedIDs()); err == nil {
		return given
	}
	return prompts.IDs()[0]
}

// unjudgedOpinion returns the opinion of a model layer without a judgement. An empty reason selects the
// default message of the trouble.
func unjudgedOpinion(t Trouble, reason string, model ModelRecord) Opinion {
	if reason == "" {
		reason = troubleMessage(t)
	}
	return Opinion{
		Layer: LayerModel, Outcome: Escalate, Confidence: unavailableConfidence, Assurance: AssuranceNone,
		Trouble: t, Reasoning: reason, Model: &model,
	}
}

// missingModel replaces the model layer if none is configured; policy decides.
type missingModel struct {
	memory Memory // nil: no earlier judgements
	now    func() time.Time
}

func (missingModel) Name() LayerName { return LayerModel }

func (n missingModel) Weigh(ctx context.Context, c Case) (Opinion, error) {
	op := unjudgedOpinion(TroubleNotConfigured, "", ModelRecord{})
	op.Model = nil // no model was asked
	return bindFallback(ctx, n.memory, c, op, n.now)
}

// newSecrets returns the marker and nonce of one question. They are random, so that nothing in the case can
// imitate them. With Stable (for cassettes), they are derived from the content that the model sees.
func (m *modelLayer) newSecrets(c Case, sample int) (marker, nonce string) {
	if !m.Stable {
		return m.Random(), m.Random()
	}
	rubric := c.Rubric
	rubric.Content, rubric.Prompt, rubric.Model = ContentFlag, "", "" // the model sees neither policies nor model names; it sees the prompt itself
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
		Precedents              []Precedent `json:",omitempty"`
		Sample                  int
	}{
		c.Workflow, c.State, c.Action, c.About, c.Operation, listCandidates(c.Candidates), c.Passed,
		c.MaskedData, c.MaskedContext, c.MaskedMerged, listEvidence(c.Fetched), c.showCall(), rubric, c.precedents, sample,
	})
	if err != nil {
		return m.Random(), m.Random() // a document that is not JSON has no stable form
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

// cacheKey identifies a question (without marker, nonce and time) and the caller that may get its answer;
// "" if it must not be cached.
func (m *modelLayer) cacheKey(c Case, q question, sample int) string {
	if c.Instance == "" || c.Identity == "" {
		return ""
	}
	h := sha256.New()
	steady := []string{q.marker, "\x00marker", q.nonce, "\x00nonce"}
	if q.time != "" { // Identity covers the data, in case they contain the time, too
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

// hashPart writes a string preceded by its length, so that no two lists of strings hash alike.
func hashPart(h hash.Hash, text string) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(text)))
	h.Write(size[:])
	h.Write([]byte(text))
}

func (r *ModelRecord) recordReply(q question, reply llm.Reply) {
	r.Model = cmp.Or(reply.Model, r.Model)
	r.Reported, r.Fingerprint = q.clean(reply.Reported, maxLabel), q.clean(reply.Fingerprint, maxLabel)
	r.Endpoint, r.Rung = q.clean(reply.Endpoint, maxLabel), string(reply.Rung)
	r.Lenient, r.Reasked, r.CacheHit, r.Shared = reply.Lenient, reply.Reasked, reply.CacheHit, reply.Shared
	r.Calls, r.Breaker = max(reply.Calls, 0), reply.Breaker
	r.Stated = clampUnit(reply.Answer.Confidence)
	r.recordCost(reply.Usage, reply.CostUSD)
}

func (r *ModelRecord) recordCost(u *llm.Usage, usd *float64) {
	r.CostUSD = usd
	if u != nil {
		r.PromptTokens, r.CompletionTokens, r.CachedTokens = &u.Prompt, &u.Completion, &u.Cached
	}
}

// How long to wait before asking a model again: the minimum for a busy one, and the default for
// an unavailable one.
const (
	minBusyRetry     = time.Second
	unavailableRetry = 10 * time.Second
)

// BusyError means that nothing can be decided now, whatever the case. It matches ErrBusy.
type BusyError struct {
	// Message is a sentence for the caller.
	Message string
	// RetryAfter is the shortest wait after which a retry can help.
	RetryAfter time.Duration
	// Err is the cause, for the operator; nil if Message is complete.
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

// Unwrap returns the cause.
func (e *BusyError) Unwrap() error { return e.Err }

// asBusyError returns the *BusyError for a busy model, nil for other failures.
func asBusyError(err error) error {
	var e *llm.Error
	if !errors.As(err, &e) || !e.IsBusy() {
		return nil
	}
	return &BusyError{Message: busyMessage(e), RetryAfter: max(e.RetryAfter, minBusyRetry), Err: err}
}

// failureOpinion returns the opinion for a model that gave no answer. A failure that is not known to be
// external counts as caused by the case.
func failureOpinion(model ModelRecord, q question, err error) Opinion {
	var e *llm.Error
	if !errors.As(err, &e) || e.Class == "" {
		model.Failure, model.Detail = string(llm.ClassMalformed), "the Completer returned an error that is not an *llm.Error"
		return unjudgedOpinion(TroubleUnreadable, "", model)
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
	op := unjudgedOpinion(trouble, failureMessage(trouble, e.Class), model)
	op.RetryAfter = document.Milliseconds(max(e.RetryAfter, 0))
	if trouble == TroubleUnavailable && op.RetryAfter == 0 {
		op.RetryAfter = document.Milliseconds(unavailableRetry)
	}
	return op
}
