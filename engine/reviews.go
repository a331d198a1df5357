package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// ReviewSummary is a review as everyone who may see the instance sees it.
type ReviewSummary struct {
	ID     string              `json:"reviewId"`
	Status record.ReviewStatus `json:"status"`
	// Instance is the instance's id.
	Instance string `json:"id,omitzero"`
	// Tool is the gated tool, if the review is about a call of it. CallID is the call, if a person has to decide
	// whether it happened.
	Tool   string `json:"tool,omitempty"`
	CallID string `json:"callId,omitempty"`
	// Kind is "step" for a review of the outcome of a run's step, "input" for a review of input that the step's
	// server asks for, and "" for all others.
	Kind string `json:"kind,omitempty"`
	// EndedEarly reports that the review is not about an action: the agent ended in a state where it may not
	// end, after as many refused stops as the operator allows.
	EndedEarly bool   `json:"endedEarly,omitempty"`
	Workflow   string `json:"workflow,omitzero"`
	Action     string `json:"action,omitzero"`
	From       string `json:"from,omitzero"`
	Target     string `json:"target,omitempty"`
	// RequestedBy is the principal that asked for the move.
	RequestedBy string          `json:"requestedBy,omitzero"`
	Priority    record.Priority `json:"priority"`
	ParkedAt    time.Time       `json:"parkedAt,omitzero"`
	ExpiresAt   time.Time       `json:"expiresAt,omitzero"`
	Revision    int64           `json:"revision,omitzero"`
	// The resolution; empty while the review is open.
	Decision judge.Outcome  `json:"decision,omitempty"`
	By       string         `json:"by,omitempty"`
	Channel  record.Channel `json:"channel,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	ClosedAt time.Time      `json:"closedAt,omitzero"`
	// Next describes in one sentence what the review means for the requester.
	Next string `json:"next"`
}

// The kinds of reviews that AskStep opens.
const (
	reviewOfStep  = "step"
	reviewOfInput = "input"
)

// maxRecordedContent limits how many bytes of one piece of evidence an event keeps.
const maxRecordedContent = 4 << 10

// trimEvidence returns evidence as events keep it. If the content is too large, only its digest remains.
func trimEvidence(all []judge.Evidence) []judge.Evidence {
	out := slices.Clone(all)
	for i := range out {
		if len(out[i].Content) > maxRecordedContent {
			out[i].Content = nil
		}
	}
	return out
}

// bindReview returns the scope and the text whose digest ties a review to exactly one request. The text covers who
// asked for what, with which data, context and evidence, at which revision and under which definition. Only the
// digest is kept.
func bindReview(inst record.Instance, who, action string, data json.RawMessage, evidence []judge.Evidence, call *record.Call) (record.Scope, []byte) {
	parts := []string{
		"gavel/review/v1", inst.ID, fmt.Sprint(inst.Revision), inst.State, inst.DefinitionHash, who, action,
		canonicalText(data), canonicalText(inst.Context),
	}
	for _, ev := range evidence {
		parts = append(parts, ev.Name, ev.Sameness())
	}
	if call != nil {
		parts = append(parts, call.Gate, call.Arguments)
	}
	return scopeOf(purposeReview, inst.Owner, inst.Workflow), []byte(digestParts(parts...))
}

// parkedMove is a move that already waits for a person.
type parkedMove struct {
	review store.Review
	// unjudgedCode is the code of a decision that waits only because no model could be asked, else "". A repeated
	// request is then judged again, and joins the review only if it gets the same code.
	unjudgedCode string
	// isReconfigured reports that it was judged with another configuration of the judge.
	isReconfigured bool
}

// canJoin reports whether a request is answered with the open review of the same request. v is the present verdict, or
// zero before there is one.
func (p *parkedMove) canJoin(v judge.Verdict) bool {
	return p != nil && !p.isReconfigured && p.unjudgedCode == v.Code
}

func (p *parkedMove) id() string {
	if p == nil {
		return ""
	}
	return p.review.ID
}

// findParked returns the open review of a request: the same data get the same review. It first ends a review that is
// overdue.
func (e *Engine) findParked(ctx context.Context, inst *instance, ask workflow.CaseInput, call *gatedCall) (*parkedMove, error) {
	at := slices.IndexFunc(inst.Facts.Reviews, func(o workflow.OpenReview) bool { return o.Action == ask.Action })
	if at < 0 {
		return nil, nil //nolint:nilnil // nothing waits
	}
	row, err := e.findReview(ctx, inst.Facts.Reviews[at].ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil //nolint:nilnil // a repair may have lost it
	case err != nil:
		return nil, StoreError("read the review", err)
	case e.isOverdue(row) && row.OnExpire != workflow.ExpireRaise:
		if err := e.expireReview(ctx, row); err != nil {
			return nil, err
		}
		return nil, e.reload(ctx, inst)
	case row.Principal != inst.by.ID || canonicalText(row.Data) != string(ask.Read.Canonical()):
		return nil, nil //nolint:nilnil // other data supersede it
	}
	asked, err := e.loadOpeningEvent(ctx, inst.ID, row.Seq)
	if err != nil {
		return nil, err
	}
	if !call.matches(asked.Call) {
		return nil, nil //nolint:nilnil // other arguments supersede it
	}
	w := &parkedMove{review: row, isReconfigured: asked.JudgeConfigHash != inst.overlaysHash}
	if code := asked.Decision.Code; code == judge.CodeJudgeNotConfigured || code == judge.CodeJudgeUnavailable {
		w.unjudgedCode = code
	}
	return w, nil
}

func (past history) loadOpeningEvent(ctx context.Context, instance string, seq int64) (record.Event, error) {
	ev, err := store.First(past.store.Events(ctx, store.EventQuery{Instance: instance, AfterSeq: seq - 1, Limit: 1}), fmt.Sprintf("event %d", seq))
	switch {
	case errors.Is(err, store.ErrNotFound): // asking again does not help
		return record.Event{}, InternalError("read the review", fmt.Errorf("instance %s: %w", instance, err))
	case err != nil:
		return record.Event{}, StoreError("read the history", err)
	case ev.Seq > seq:
		return record.Event{}, newError(CodeUnknownReview, "", "The request of this review is no longer available: the beginning of the instance's history was removed.").
			withHint("The list of reviews still shows its result.").withCause(store.ErrNotFound)
	case ev.Seq != seq || ev.Kind != record.Escalated:
		return record.Event{}, InternalError("read the review", fmt.Errorf("event %d of %s opens no review", seq, instance))
	}
	return ev, nil
}

// parkMove opens a review of an escalated move. It refuses the move instead if too many of the principal's requests
// already wait.
func (e *Engine) parkMove(ctx context.Context, j judgement) (AdvanceResult, error) {
	release, err := e.startCounts.lockCounts(ctx, j.by, "reviews")
	if err != nil {
		return AdvanceResult{}, err
	}
	defer release()
	supersedes, err := e.wouldSupersedeOwn(ctx, j.instance, j.question.Action)
	if err != nil {
		return AdvanceResult{}, err
	}
	full, err := e.isReviewQueueFull(ctx, j.by)
	if err != nil {
		return AdvanceResult{}, err
	}
	if full && !supersedes {
		j.verdict = tooManyReviews(j.verdict, e.cfg.Limits.OpenReviews)
		return e.recordJudgement(ctx, j)
	}
	row := e.newReviewRow(j)
	ev := e.decisionEvent(j, record.Escalated)
	ev.Review = newOpening(row)
	return e.commitMove(ctx, j, ev, &row)
}

// wouldSupersedeOwn reports whether a review of the action would replace one that the same principal asked for. Then the
// number of reviews does not grow.
func (past history) wouldSupersedeOwn(ctx context.Context, inst instance, action string) (bool, error) {
	for _, open := range inst.Facts.Reviews {
		if open.Action != action {
			continue
		}
		row, err := past.findReview(ctx, open.ID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, StoreError("read the review", err)
		}
		return err == nil && row.Principal == inst.by.ID, nil
	}
	return false, nil
}

// newOpenReview returns a review that the caller's request opens for an instance.
func (e *Engine) newOpenReview(inst instance, priority record.Priority, at time.Time) store.Review {
	return store.Review{
		ID: "rev-" + e.cfg.NewID(), Status: record.ReviewOpen,
		Instance: inst.ID, Workflow: inst.Workflow, Version: inst.Version, DefinitionHash: inst.DefinitionHash,
		Principal: inst.by.ID, Role: string(inst.by.Role), From: inst.State, Priority: priority, ParkedAt: at,
	}
}

// newOpening returns the part of an event that opens a review.
func newOpening(row store.Review) *record.Review {
	return &record.Review{ID: row.ID, Status: record.ReviewOpen, RequestedBy: row.Principal, Digest: row.Digest, Priority: row.Priority, ExpiresAt: row.ExpiresAt}
}

func (e *Engine) newReviewRow(j judgement) store.Review {
	action, data := j.question.Action, j.question.Data.Raw()
	s := j.def.Review(j.State, action)
	scope, question := bindReview(j.Instance, j.by.ID, action, data, j.verdict.Evidence, j.call.reference())
	row := e.newOpenReview(j.instance, record.Priority(s.Priority), j.question.Now)
	row.Action, row.Target, row.Digest = action, j.verdict.Target, e.cfg.Digester.DigestIn(scope, question)
	row.OnExpire, row.Data, row.Evidence = s.OnExpire, data, j.verdict.Evidence
	if j.call != nil {
		row.Tool = j.call.Gate
	}
	if s.ExpiresAfter > 0 {
		row.ExpiresAt = j.question.Now.Add(s.ExpiresAfter)
	}
	return row
}

// isReviewQueueFull reports whether a principal has Limits.OpenReviews open reviews. Expired reviews do not count,
// even if their end is not recorded yet. Early ends do not count either: nothing waits for them.
func (e *Engine) isReviewQueueFull(ctx context.Context, p Principal) (bool, error) {
	n := 0
	for row, err := range e.cfg.Store.Reviews(ctx, store.ReviewQuery{Principal: p.ID, Status: record.ReviewOpen}) {
		if err != nil {
			return false, StoreError("count the reviews", err)
		}
		if !row.IsStop() && (!e.isOverdue(row) || row.OnExpire == workflow.ExpireRaise) {
			n++
		}
		if n >= e.cfg.Limits.OpenReviews {
			return true, nil
		}
	}
	return false, nil
}

func tooManyReviews(v judge.Verdict, limit int) judge.Verdict {
	why := validators.Finding{
		Code: judge.CodeReviewLimit, Message: fmt.Sprintf("This needs a person's decision, but %d of your requests are already waiting for review.", limit),
		Hint: "Wait until some are resolved, or give up those you no longer need.",
	}
	v.Outcome, v.Code, v.DecidedBy, v.RetryAfter = judge.Reject, why.Code, judge.ByPolicy, 0
	v.Findings = slices.Insert(slices.Clone(v.Findings), 0, why)
	v.Reasoning = why.Message + " " + why.Hint
	return v
}

func (e *Engine) summarizeReview(row store.Review) *ReviewSummary {
	s := &ReviewSummary{
		ID: row.ID, Status: row.Status, Instance: row.Instance, Workflow: row.Workflow, Action: row.Action,
		Tool: row.Tool, CallID: row.Call, EndedEarly: row.IsStop(), From: row.From, Target: row.Target, RequestedBy: row.Principal, Priority: row.Priority,
		ParkedAt: row.ParkedAt, ExpiresAt: row.ExpiresAt, Revision: row.Revision,
		Decision: row.Resolution, By: row.By, Channel: row.Channel, Reason: row.Reason, ClosedAt: row.ClosedAt,
	}
	if row.IsStep() {
		s.Kind = reviewOfStep
	}
	if row.IsInput() {
		s.Kind = reviewOfInput
	}
	if e.isOverdue(row) {
		if row.OnExpire == workflow.ExpireRaise {
			s.Priority, s.ExpiresAt = record.PriorityUrgent, time.Time{} // as it will be recorded
		} else {
			s.Status = record.ReviewExpired
		}
	}
	s.Next = nextStepOfReview(*s)
	return s
}

func nextStepOfReview(s ReviewSummary) string {
	switch {
	case s.EndedEarly:
		return nextStepOfStop(s)
	case s.Kind != "":
		return nextStepOfRun(s)
	case s.CallID != "" && s.Status == record.ReviewOpen:
		return "It is unknown whether the call happened; the tool is not called again until a person decides that."
	case s.CallID != "" && s.Status == record.ReviewResolved && s.Decision == judge.Approve:
		return "A person found that the call happened."
	case s.CallID != "" && s.Status == record.ReviewResolved:
		return "A person found that the call did not happen."
	case s.Tool != "" && s.Status == record.ReviewResolved && s.Decision == judge.Approve:
		return "Approved once: make exactly the same call again, with a new idempotency key if you use one."
	case s.Status == record.ReviewOpen:
		return "A person decides this; check with workflow.status. Other actions are possible, but they void this review."
	case s.Status == record.ReviewResolved && s.Decision == judge.Approve:
		return "It was approved, and the move was made."
	case s.Status == record.ReviewResolved:
		return "It was rejected. Fix what the reason names, then ask again, with a new idempotency key if you use one. An identical request gets no new review until a person reopens this one."
	case s.Status == record.ReviewReopened:
		return "It was rejected, and then reopened: ask for the action again, with a new idempotency key if you use one."
	case s.Status == record.ReviewExpired:
		return "It was not decided in time. Ask for the action again if it is still wanted, with a new idempotency key if you use one."
	case s.Status == record.ReviewSuperseded:
		return "A later request with other data replaced it."
	default:
		return "The instance or the request has changed since. Ask for the action again if it is still wanted, with a new idempotency key if you use one."
	}
}

func nextStepOfStop(s ReviewSummary) string {
	switch {
	case s.Status == record.ReviewOpen:
		return "The agent ended early, and a person was notified. Nothing waits for the answer: the workflow can continue, and its next move closes this review."
	case s.Status == record.ReviewResolved && s.Decision == judge.Approve:
		return "A person accepted that the agent ended here; this holds until the instance moves."
	case s.Status == record.ReviewResolved:
		return "A person sent the agent back: continue with the workflow."
	case s.Status == record.ReviewReopened:
		return "A person sent the agent back, then withdrew that."
	default:
		return "The instance has changed since the agent ended."
	}
}
