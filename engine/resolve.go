package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ResolveRequest decides a review.
type ResolveRequest struct {
	ID string // of the review
	// Decision is approve or reject, Reopen for a rejected review, or GiveUp for the review of a step.
	Decision judge.Outcome
	// Reason is required.
	Reason string
	// Output is the output of a step that happened, for the review of a step; nil for none.
	Output json.RawMessage
	// Channel is how the person's decision arrived; "" is record.ChannelAPI.
	Channel record.Channel
	Key     string // idempotency key, "" for none
}

// Reopen withdraws a rejection: the same request may be made again.
const Reopen judge.Outcome = "reopen"

// ResolveResult answers a ResolveRequest. An approval that could not be carried out is a result too:
// Applied is false, and Review and Decision give the reason.
type ResolveResult struct {
	Position
	Review ReviewSummary `json:"review"`
	// Applied reports whether the move was made.
	Applied  bool     `json:"applied"`
	Decision Decision `json:"decision"`
	Message  string   `json:"message"`
	Replayed bool     `json:"replayed,omitempty"`
}

// Resolve decides a review, once. Only reviewers and operators may, unless they requested the move, own the
// instance, or performed an action that notBy names. For an approval, the deterministic layers judge exactly
// the parked request again. If they agree, the move and the resolution are one commit.
//
// The error has CodeReviewClosed if the review is no longer open.
func (e *Engine) Resolve(ctx context.Context, p Principal, req ResolveRequest) (ResolveResult, error) {
	var r reviewCase
	m := mutation{
		right: RightResolve, id: req.ID, key: req.Key, noRetry: true,
		content: func() []string { return []string{string(req.Decision), req.Reason, string(req.Output)} },
		check:   func() error { return e.checkResolve(&req) },
		load: func(ctx context.Context, inst *instance) (err error) {
			if r, err = e.loadDueReview(ctx, p, req.ID); err == nil {
				r.request, r.req = inst.request, req
			}
			return err
		},
	}
	return mutate(ctx, e, p, m, func(ctx context.Context, _ *instance) (ResolveResult, error) {
		out, err := e.resolve(ctx, r)
		if errors.Is(err, errReviewClosed) || errors.Is(err, store.ErrConflict) {
			err = e.alreadyResolvedError(ctx, r)
		}
		return out, err
	}, e.replayResolve)
}

func (e *Engine) checkResolve(req *ResolveRequest) error {
	if req.Channel == "" {
		req.Channel = record.ChannelAPI
	}
	req.Reason = strings.TrimSpace(req.Reason)
	switch {
	case !slices.Contains([]judge.Outcome{judge.Approve, judge.Reject, Reopen, GiveUp}, req.Decision):
		return &Error{Code: CodeInvalidArgument, Path: "/decision", Message: fmt.Sprintf("The decision must be approve or reject, reopen for a rejected review, or give-up for the review of a step; got %.40q.", req.Decision), Hint: "There is no default."}
	case req.Reason == "":
		return MissingField("reason", "One sentence. It is recorded, and shown to the caller that requested the move.")
	case req.Channel == record.ChannelClient && !e.cfg.ClientReviews:
		return &Error{Code: CodeForbidden, Message: "Reviews through the agent's own client are not allowed here.", Hint: "Use the command line, or a reviewer's own client."}
	}
	return e.CheckText("reason", req.Reason)
}

// reviewCase is a review with its instance and, while it is being decided, the request that decides it.
type reviewCase struct {
	instance
	row       store.Review
	destroyed bool // sensitive values that it is about were destroyed
	req       ResolveRequest
	opening   record.Event // the event that opened it
}

// loadDueReview loads a review, after expiring it if it is overdue.
func (e *Engine) loadDueReview(ctx context.Context, p Principal, id string) (reviewCase, error) {
	r, err := e.loadReview(ctx, p, id)
	if err != nil || !e.isOverdue(r.row) {
		return r, err
	}
	if err := e.expireReview(ctx, r.row); err != nil {
		return r, err
	}
	return e.loadReview(ctx, p, id)
}

func (e *Engine) resolve(ctx context.Context, r reviewCase) (_ ResolveResult, err error) {
	decision, hasOutput := r.req.Decision, len(r.req.Output) > 0
	switch reopens := decision == Reopen; {
	case reopens && r.row.Status == record.ReviewOpen:
		return ResolveResult{}, &Error{Code: CodeInvalidArgument, Path: "/decision", Message: "The review is open.", Hint: "Approve or reject it."}
	case reopens != isRejected(r.row), !reopens && r.row.Status != record.ReviewOpen:
		return ResolveResult{}, e.reviewClosed(ctx, r)
	case !r.row.IsStep() && (decision == GiveUp || hasOutput):
		return ResolveResult{}, &Error{Code: CodeInvalidArgument, Path: "/decision", Message: "give-up and output are only for reviews of a step.", Hint: "Approve or reject it."}
	case r.row.IsStep() && decision == judge.Approve && !hasOutput:
		return ResolveResult{}, missingOutput(r.row)
	case hasOutput && decision != judge.Approve:
		return ResolveResult{}, &Error{Code: CodeInvalidArgument, Path: "/output", Message: "Only an approval has an output.", Hint: "Approve with the output, or leave it out."}
	case r.row.Call != "":
		return e.resolveCall(ctx, r)
	}
	if r.opening, err = e.loadOpeningEvent(ctx, r.ID, r.row.Seq); err != nil {
		return ResolveResult{}, err
	}
	if err := mayResolve(r); err != nil {
		return ResolveResult{}, err
	}
	r.req.Reason = r.maskWords(r.row.Data).scrubText(r.req.Reason)
	switch {
	case decision == Reopen:
		return e.reopenReview(ctx, r)
	case r.destroyed:
		return e.voidReview(ctx, r, "Sensitive values that it is about were destroyed.", nil)
	case !r.isBound(e.cfg.Digester):
		return e.voidReview(ctx, r, "The stored review does not match the original request; it may have been changed.", nil)
	case r.opening.IsStop():
		return e.resolveStop(ctx, r)
	case decision == judge.Reject:
		why := validators.Finding{Code: judge.CodeReviewRejected, Message: fmt.Sprintf("A reviewer rejected it: %s", r.req.Reason)}
		v := newReviewerVerdict(r, why.Code, why.Message)
		v.Target, v.Findings = r.row.Target, []validators.Finding{why}
		return e.finishReview(ctx, r, newReviewEnd(r), e.newReviewDecision(r, v), "Rejected; the state stays as it is.")
	}
	if err := r.checkNotTakenOver(); err != nil {
		return ResolveResult{}, err
	}
	return e.approveReview(ctx, r)
}

// missingOutput returns the rejection of an approval without output; otherwise the run would continue with
// an unintended null.
func missingOutput(row store.Review) *Error {
	e := &Error{Code: CodeInvalidArgument, Path: "/output", Message: "To approve this review, give the result of the step's call as output."}
	e.Hint = "Send the result as JSON, or null if the call returned nothing. If the call did not happen, reject or give up."
	if row.IsInput() {
		e.Message = "To approve this review, give the input that the server requires as output."
		e.Hint = "Send the content of the form as JSON. Reject to decline, or give up."
	}
	return e
}

// mayResolve rejects principals that are involved in the move that the review is about.
func mayResolve(r reviewCase) error {
	asked := r.opening
	if r.req.Channel == record.ChannelClient && asked.Decision.Rubric.Risk == judge.RiskHigh {
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%q is high-risk and cannot be decided through the agent's own client.", asked.Action), Hint: "Use the command line, or a reviewer's own client."}
	}
	return CheckUninvolved(r.by, r.Instance, r.def, asked)
}

// CheckUninvolved returns an error if a principal asked for a move itself, owns the instance, or performed an action
// that excludes it from deciding the move (notBy).
func CheckUninvolved(p Principal, inst record.Instance, def *workflow.Definition, asked record.Event) error {
	forbidden := func(message string) error {
		return &Error{Code: CodeForbidden, Message: message, Hint: "Leave it to another reviewer."}
	}
	var t *workflow.Transition
	if s := def.States[asked.From]; s != nil {
		t = s.Transitions[asked.Action]
	}
	switch {
	case p.ID == asked.Principal:
		return forbidden("You asked for this move yourself.")
	case p.ID == inst.Owner:
		return forbidden("You own this instance.")
	case t == nil:
		return nil // the layers report that the action no longer exists
	}
	for _, before := range t.NotBy {
		switch performed := inst.Facts.Performed[before]; {
		case slices.Contains(performed, p.ID):
			return forbidden(fmt.Sprintf("You performed %q on this instance; a caller that did may not decide %q.", before, asked.Action))
		case slices.Contains(performed, p.Alias):
			return forbidden(fmt.Sprintf("%s performed %q on this instance, which may have been you; a caller that did may not decide %q.", p.Alias, before, asked.Action))
		}
	}
	return nil
}

// isBound reports whether a stored review matches the history: it is the review that the event opened,
// about the present revision, with the original data.
func (r reviewCase) isBound(keyed Digester) bool {
	opened := r.opening.Review
	at := slices.IndexFunc(r.Facts.Reviews, func(o workflow.OpenReview) bool { return o.ID == r.row.ID })
	if at < 0 || opened == nil || opened.ID != r.row.ID {
		return false
	}
	scope, question := bindReview(r.Instance, r.opening.Principal, r.opening.Action, r.row.Data, r.opening.Decision.Evidence, r.opening.Call)
	return opened.Digest == r.Facts.Reviews[at].Digest && keyed.Matches(opened.Digest, scope, question)
}

// newReviewerVerdict returns the verdict of a person.
func newReviewerVerdict(r reviewCase, code, reasoning string) judge.Verdict {
	how := r.req.Decision
	return judge.Verdict{
		Outcome: how, Proposed: how, Code: code, Confidence: 1, Assurance: judge.AssuranceHuman, DecidedBy: judge.ByReviewer, Mode: judge.Enforce, Reasoning: reasoning,
		Opinions: []judge.Opinion{{Layer: judge.ByReviewer, Outcome: how, Confidence: 1, Assurance: judge.AssuranceHuman, Reasoning: r.req.Reason}},
	}
}

func newReviewEnd(r reviewCase) record.Review {
	return record.Review{ID: r.row.ID, Status: record.ReviewResolved, Resolution: r.req.Decision, By: r.by.ID, Channel: r.req.Channel, Reason: r.req.Reason}
}

func (e *Engine) newReviewDecision(r reviewCase, v judge.Verdict) *record.Decision {
	return &record.Decision{ID: "dec-" + e.cfg.NewID(), Verdict: v, ContextDigest: digestContext(e.cfg.Digester, r.Instance, r.Context)}
}

func (e *Engine) approveReview(ctx context.Context, r reviewCase) (ResolveResult, error) {
	asked, inst := r.opening, r.instance
	inst.by = Principal{ID: asked.Principal, Role: Role(asked.Role)}
	c, err := e.newCase(inst, workflow.CaseInput{Action: r.row.Action, Read: document.ReadTrusted(r.row.Data)})
	if err != nil {
		return ResolveResult{}, err
	}
	if asked.Call != nil {
		skipScripts(&c, asked.Decision.Target)
	}
	c.Digest, c.RecentEvidence, c.Caller = digestEvidence(e.cfg.Digester, inst.Instance), e.findReusableEvidence(r.row, asked), r.by.ID
	v, err := e.cfg.Judge.Approve(ctx, c, judge.Review{By: r.by.ID, Reason: r.req.Reason})
	if err != nil {
		return ResolveResult{}, judgeError(err)
	}
	if lost, ok := findUnavailable(asked.Decision.Evidence, v.Evidence); ok {
		return ResolveResult{}, lost
	}
	if name, ok := findChanged(asked.Decision.Evidence, v.Evidence); ok {
		return e.voidReview(ctx, r, fmt.Sprintf("The evidence %q has changed since the review was opened.", name), &v)
	}
	if !v.Applied {
		return e.voidReview(ctx, r, "The rules of the workflow no longer allow the move: "+v.Reasoning, &v)
	}
	if was := asked.Decision.Target; was != "" && was != v.Target {
		return e.voidReview(ctx, r, fmt.Sprintf("The action led to %q when the review was opened, and leads to %q now.", was, v.Target), &v)
	}
	if asked.Call != nil {
		return e.grantCall(ctx, r, v)
	}
	if tool := e.findGate(inst.Workflow, r.row.Action); tool != "" {
		return e.voidReview(ctx, r, fmt.Sprintf("The action is now performed by a call of %s.", tool), &v)
	}
	end := newReviewEnd(r)
	ev := e.decisionEvent(judgement{instance: inst, question: c, verdict: v}, record.Advanced)
	ev.Review = &end
	return e.commitReview(ctx, r, change{event: ev, resolves: &r.row, end: end, lesson: newForgiveness(c, v)}, fmt.Sprintf("Approved; %q was performed.", r.row.Action))
}

// skipScripts removes the checks that may read a call's arguments, which are not stored. The scripts run
// again when the approved call is made. target is where the action led.
func skipScripts(c *judge.Case, target string) {
	c.Checks.Validators = nil
	at := slices.IndexFunc(c.Candidates, func(next judge.Candidate) bool { return next.Target == target })
	if at >= 0 && len(c.Checks.Routes) > 0 {
		c.Candidates, c.Checks.Routes = c.Candidates[at:at+1], nil
	}
}

// newForgiveness returns the lesson that clears the loop guard's count: a person has approved the data.
func newForgiveness(c judge.Case, v judge.Verdict) *store.Lesson {
	if c.Guard == "" {
		return nil
	}
	return &store.Lesson{Guard: c.Guard, Bound: judge.BoundWith(c.Bound, v.Evidence), Principal: c.Principal, Workflow: c.Workflow, Action: c.Action, At: c.Now, Cleared: true}
}

// findReusableEvidence returns the evidence that need not be fetched again: it is within its MaxAge and matches the
// history. Evidence about the state of files is always fetched again. So is evidence dated in the future, which
// happens after a clock was turned back.
func (e *Engine) findReusableEvidence(row store.Review, asked record.Event) []judge.Evidence {
	var out []judge.Evidence
	for _, recorded := range asked.Decision.Evidence {
		age := e.Now().Sub(recorded.At)
		if recorded.Failure != "" || recorded.Tree != "" || recorded.MaxAge <= 0 || age < 0 || age > recorded.MaxAge.Duration() {
			continue
		}
		for _, held := range row.Evidence {
			if held.Name != recorded.Name {
				continue
			}
			if whole, ok := recorded.With(held.Content); ok {
				out = append(out, whole)
			}
		}
	}
	return out
}

// findChanged returns the name of evidence that has changed, in content or in the files that it is about.
func findChanged(before, after []judge.Evidence) (string, bool) {
	now := map[string]judge.Evidence{}
	for _, e := range after {
		now[e.Name] = e
	}
	for _, e := range before {
		if later, ok := now[e.Name]; ok && (later.Sameness() != e.Sameness() || later.Tree != e.Tree) {
			return e.Name, true
		}
	}
	return "", false
}

// findUnavailable returns an error if evidence that was present when the review was opened is unavailable
// now. That is not a change: an approval from a process that cannot reach the source must not void the
// review.
func findUnavailable(before, after []judge.Evidence) (error, bool) { //nolint:revive // the error is the answer
	had := map[string]bool{}
	for _, e := range before {
		had[e.Name] = e.Failure == ""
	}
	for _, e := range after {
		if had[e.Name] && e.Failure != "" {
			return newError(CodeUnavailable, "", "The evidence %q must be fetched again but is unavailable (%s).", e.Name, e.Failure).
				withHint("The review stays open; approve it on a server that can reach the evidence sources."), true
		}
	}
	return nil, false
}

// voidReview ends a review that can no longer be approved, with the reason.
func (e *Engine) voidReview(ctx context.Context, r reviewCase, why string, v *judge.Verdict) (ResolveResult, error) {
	if n := e.cfg.Limits.Text; len(why) > n {
		why = strings.ToValidUTF8(why[:n], "")
	}
	var d *record.Decision
	if v != nil {
		d = e.newReviewDecision(r, *v)
		d.Applied, d.Evidence = false, trimEvidence(v.Evidence)
	}
	return e.finishReview(ctx, r, record.Review{ID: r.row.ID, Status: record.ReviewStale, Reason: why}, d, "Not approved: "+why)
}

// finishReview ends a review with a separate event, for decisions that make no move.
func (e *Engine) finishReview(ctx context.Context, r reviewCase, end record.Review, d *record.Decision, message string) (ResolveResult, error) {
	ev := e.reviewEvent(r.by, r.row, end)
	ev.Decision = d
	return e.commitReview(ctx, r, change{event: ev, resolves: &r.row, end: end}, message)
}

func (e *Engine) reviewEvent(p Principal, row store.Review, end record.Review) record.Event {
	ev := e.newEvent(p, record.Reviewed)
	end.RequestedBy = row.Principal
	ev.Action, ev.Review = row.Action, &end
	return ev
}

// commitReview records a person's decision on a review, and returns the result.
func (e *Engine) commitReview(ctx context.Context, r reviewCase, do change, message string) (ResolveResult, error) {
	w, err := e.commit(ctx, r.instance, do)
	if err != nil {
		return ResolveResult{}, err
	}
	return ResolveResult{
		Position: w.next.position(), Review: *e.summarizeReview(closeRow(r.row, w.end, w.event)),
		Applied: w.event.Kind == record.Advanced, Decision: decisionView(w.event.Decision), Message: message,
	}, nil
}

func (e *Engine) reviewClosed(ctx context.Context, r reviewCase) error {
	how, pos := string(r.row.Status), r.position()
	if r.row.Status == record.ReviewResolved {
		how = fmt.Sprintf("resolved (%s) by %s", r.row.Resolution, r.row.By)
	}
	message := fmt.Sprintf("The review is no longer open: it is %s.", how)
	if shown, err := e.newView(r.by).withInstance(r.instance).renderReview(ctx, r.row); err == nil && shown.Reason != "" {
		message += " " + shown.Reason
	}
	return &Error{Code: CodeReviewClosed, Message: message, Hint: "Nothing was changed.", Current: &pos}
}

// alreadyResolvedError returns the error for a reviewer that was too late, with the present state of the review.
func (e *Engine) alreadyResolvedError(ctx context.Context, r reviewCase) error {
	now, err := e.loadReview(ctx, r.by, r.row.ID)
	switch {
	case err != nil:
		return err
	case now.row.Status == record.ReviewOpen:
		return now.conflict()
	default:
		return e.reviewClosed(ctx, now)
	}
}

func (e *Engine) replayResolve(ctx context.Context, now instance, ev record.Event) (ResolveResult, error) {
	then, err := e.instanceAfter(ctx, now, ev)
	if err != nil {
		return ResolveResult{}, err
	}
	review, err := e.findReviewView(ctx, now.by, ev.Review.ID)
	if err != nil {
		return ResolveResult{}, err
	}
	out := ResolveResult{
		Position: then.position(), Review: *review, Applied: ev.Kind == record.Advanced, Decision: decisionView(ev.Decision), Message: "This was resolved before.", Replayed: true,
	}
	if ev.Review.Status == record.ReviewStale {
		out.Message = "Not approved: " + review.Reason
	}
	return out, nil
}
