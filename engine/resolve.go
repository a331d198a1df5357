package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ResolveRequest decides a review.
type ResolveRequest struct {
	ID string // the review's
	// Decision is approve or reject, Reopen for a review that was rejected, or GiveUp for one of a
	// step.
	Decision judge.Outcome
	// Reason is required.
	Reason string
	// Output is what a step gave that happened, where the review is of one; nil for nothing.
	Output json.RawMessage
	// Channel says how the person's word came here; "" is record.ChannelAPI.
	Channel record.Channel
	Key     string // idempotency key, "" for none
}

// Reopen takes a rejection back: the same may be asked for again.
const Reopen judge.Outcome = "reopen"

// ResolveResult answers a ResolveRequest. An approval that could not be carried out is
// a result too: Applied is false, and Review and Decision say why.
type ResolveResult struct {
	Position
	Review ReviewSummary `json:"review"`
	// Applied says that the move was made.
	Applied  bool     `json:"applied"`
	Decision Decision `json:"decision"`
	Message  string   `json:"message"`
	Replayed bool     `json:"replayed,omitempty"`
}

// Resolve decides a review, once: by a reviewer or an operator who neither asked for
// the move nor owns the instance nor performed what notBy names. An approval asks the
// deterministic layers again, about exactly what was parked; when they agree, the move
// and the resolution are one commit.
//
// The error has CodeReviewClosed when the review is not open any more.
func (e *Engine) Resolve(ctx context.Context, p Principal, req ResolveRequest) (ResolveResult, error) {
	if err := Authorize(p, RightResolve); err != nil {
		return ResolveResult{}, err
	}
	if err := e.checkResolve(&req); err != nil {
		return ResolveResult{}, err
	}
	r := keyedRequest{RightResolve, req.ID, req.Key, func() []string { return []string{string(req.Decision), req.Reason, string(req.Output)} }}
	return runOnce(ctx, e, p, r, e.replayResolve, func(ctx context.Context, key *record.Key) (ResolveResult, error) {
		return e.resolve(ctx, p, req, key)
	})
}

func (e *Engine) checkResolve(req *ResolveRequest) error {
	if req.Channel == "" {
		req.Channel = record.ChannelAPI
	}
	req.Reason = strings.TrimSpace(req.Reason)
	switch {
	case !slices.Contains([]judge.Outcome{judge.Approve, judge.Reject, Reopen, GiveUp}, req.Decision):
		return &Error{Code: CodeInvalidArgument, Path: "/decision", Message: fmt.Sprintf("A review is resolved by approve or reject, by reopen where it was rejected, or by give-up where it is of a step, not by %.40q.", req.Decision), Hint: "There is no default: say which."}
	case req.Reason == "":
		return MissingField("reason", "One sentence: it is recorded, and the caller that asked for the move reads it.")
	case req.Channel == record.ChannelClient && !e.cfg.ClientReviews:
		return &Error{Code: CodeForbidden, Message: "Reviews through the agent's own client are not allowed here.", Hint: "Use the command line, or a reviewer's own client."}
	}
	return e.CheckText("reason", req.Reason)
}

// reviewCase is a review with the instance that it is about and, while it is decided, by whom.
type reviewCase struct {
	row  store.Review
	inst record.Instance
	definition
	destroyed bool // values that it is about cannot be had any more

	by    Principal
	req   ResolveRequest
	key   *record.Key
	asked record.Event // the event that opened it
}

func (e *Engine) resolve(ctx context.Context, p Principal, req ResolveRequest, key *record.Key) (ResolveResult, error) {
	r, err := e.loadReview(ctx, p, req.ID)
	if err != nil {
		return ResolveResult{}, err
	}
	if e.isOverdue(r.row) {
		if err := e.expireReview(ctx, r.row); err != nil {
			return ResolveResult{}, err
		}
		if r, err = e.loadReview(ctx, p, req.ID); err != nil {
			return ResolveResult{}, err
		}
	}
	switch reopens := req.Decision == Reopen; {
	case reopens && r.row.Status == record.ReviewOpen:
		return ResolveResult{}, &Error{Code: CodeInvalidArgument, Path: "/decision", Message: "The review is open.", Hint: "Approve or reject it."}
	case reopens != isRejected(r.row), !reopens && r.row.Status != record.ReviewOpen:
		return ResolveResult{}, e.reviewClosed(ctx, p, r)
	}
	r.by, r.req, r.key = p, req, key
	switch hasOutput := len(req.Output) > 0; {
	case !r.row.IsStep() && (req.Decision == GiveUp || hasOutput):
		return ResolveResult{}, &Error{Code: CodeInvalidArgument, Path: "/decision", Message: "The review is not of a chain's step: it is not given up, and takes no output.", Hint: "Approve or reject it."}
	case r.row.IsStep() && req.Decision == judge.Approve && !hasOutput:
		return ResolveResult{}, missingOutput(r.row)
	case hasOutput && req.Decision != judge.Approve:
		return ResolveResult{}, &Error{Code: CodeInvalidArgument, Path: "/output", Message: "Only an approval has an output.", Hint: "Approve with the output, or leave it out."}
	}
	if r.row.Call != "" {
		return e.resolveCall(ctx, r)
	}
	if r.asked, err = e.loadOpeningEvent(ctx, r.inst.ID, r.row.Seq); err != nil {
		return ResolveResult{}, err
	}
	if err := mayResolve(r); err != nil {
		return ResolveResult{}, err
	}
	r.req.Reason = maskWords(r.inst, r.definition, r.row.Data).scrubText(req.Reason)
	if req.Decision == Reopen {
		return e.reopenReview(ctx, r)
	}
	if r.destroyed {
		return e.voidReview(ctx, r, "Sensitive values that it is about were destroyed.", nil)
	}
	if !e.isBound(r) {
		return e.voidReview(ctx, r, "What is stored of this review is not what was asked; it may have been changed.", nil)
	}
	if r.asked.IsStop() {
		return e.resolveStop(ctx, r)
	}
	if req.Decision == judge.Reject {
		return e.rejectReview(ctx, r)
	}
	if err := mayMove(r.inst, r.definition, p); err != nil {
		return ResolveResult{}, err
	}
	return e.approveReview(ctx, r)
}

// missingOutput refuses an approval that would have the run go on with null where nobody meant that.
func missingOutput(row store.Review) *Error {
	e := &Error{Code: CodeInvalidArgument, Path: "/output", Message: "The review asks what a step's call gave, and the approval has no output."}
	e.Hint = "Give what the call gave as the output, as JSON; null where it gave nothing. Reject where the call did not happen, or give up."
	if row.IsInput() {
		e.Message = "The review asks for the input that a server requires, and the approval has no output."
		e.Hint = "Give the content of the form as the output, as JSON. Reject to decline, or give up."
	}
	return e
}

// mayResolve keeps principals from resolving a review that have a part in what it is about.
func mayResolve(r reviewCase) error {
	p, asked := r.by, r.asked
	forbidden := func(message string) error {
		return &Error{Code: CodeForbidden, Message: message, Hint: "Leave it to another reviewer."}
	}
	var t *workflow.Transition
	if s := r.definition.def.States[asked.From]; s != nil {
		t = s.Transitions[asked.Action]
	}
	switch {
	case p.ID == asked.Principal:
		return forbidden("You asked for this move yourself.")
	case p.ID == r.inst.Owner:
		return forbidden("You own this instance.")
	case r.req.Channel == record.ChannelClient && asked.Decision.Rubric.Risk == judge.RiskHigh:
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%q is of high risk; it is not decided through the agent's own client.", asked.Action), Hint: "Use the command line, or a reviewer's own client."}
	case t == nil:
		return nil // the layers will say that the action is gone
	}
	for _, before := range t.NotBy {
		switch performed := r.inst.Facts.Performed[before]; {
		case slices.Contains(performed, p.ID):
			return forbidden(fmt.Sprintf("You performed %q on this instance; a caller that did may not decide %q.", before, asked.Action))
		case slices.Contains(performed, p.Alias):
			return forbidden(fmt.Sprintf("%s performed %q on this instance, which may have been you; a caller that did may not decide %q.", p.Alias, before, asked.Action))
		}
	}
	return nil
}

// isBound reports whether a stored review is the one that the history says, about the
// present revision, with the data that were asked with.
func (e *Engine) isBound(r reviewCase) bool {
	opened := r.asked.Review
	at := slices.IndexFunc(r.inst.Facts.Reviews, func(o workflow.OpenReview) bool { return o.ID == r.row.ID })
	if at < 0 || opened == nil || opened.ID != r.row.ID {
		return false
	}
	scope, question := bindReview(r.inst, r.asked.Principal, r.asked.Action, r.row.Data, r.asked.Decision.Evidence, r.asked.Call)
	return opened.Digest == r.inst.Facts.Reviews[at].Digest && e.cfg.Digester.Matches(opened.Digest, scope, question)
}

func (e *Engine) rejectReview(ctx context.Context, r reviewCase) (ResolveResult, error) {
	why := validators.Finding{Code: judge.CodeReviewRejected, Message: fmt.Sprintf("A reviewer rejected it: %s", r.req.Reason)}
	d := e.newReviewDecision(r, judge.Verdict{
		Outcome: judge.Reject, Proposed: judge.Reject, Code: why.Code, Target: r.row.Target, Confidence: 1, Assurance: judge.AssuranceHuman,
		DecidedBy: judge.ByReviewer, Mode: judge.Enforce, Reasoning: why.Message, Findings: []validators.Finding{why},
		Opinions: []judge.Opinion{{Layer: judge.ByReviewer, Outcome: judge.Reject, Confidence: 1, Assurance: judge.AssuranceHuman, Reasoning: r.req.Reason}},
	})
	return e.finishReview(ctx, r, newReviewEnd(r, judge.Reject), d, "Rejected; the state stays as it is.")
}

func newReviewEnd(r reviewCase, how judge.Outcome) record.Review {
	return record.Review{ID: r.row.ID, Status: record.ReviewResolved, Resolution: how, By: r.by.ID, Channel: r.req.Channel, Reason: r.req.Reason}
}

func (e *Engine) newReviewDecision(r reviewCase, v judge.Verdict) *record.Decision {
	return &record.Decision{ID: "dec-" + e.cfg.NewID(), Verdict: v, ContextDigest: e.digestContext(r.inst, r.inst.Context)}
}

func (e *Engine) approveReview(ctx context.Context, r reviewCase) (ResolveResult, error) {
	inst, asked := r.inst, r.asked
	requester := Principal{ID: asked.Principal, Role: Role(asked.Role)}
	overlays, hash, err := e.loadOverlays(ctx, r.definition, inst.Owner, time.Time{})
	if err != nil {
		return ResolveResult{}, err
	}
	c, err := e.newCase(inst, r.definition, requester, workflow.CaseInput{Action: r.row.Action, Read: document.Known(r.row.Data), Overlays: overlays, JudgeConfigHash: hash})
	if err != nil {
		return ResolveResult{}, err
	}
	if asked.Call != nil {
		leaveScripts(&c, asked.Decision.Target)
	}
	c.Digest, c.RecentEvidence, c.Caller = e.digestEvidence(inst, asked.Decision.Evidence), e.freshEvidence(r.row, asked), r.by.ID
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
		return e.voidReview(ctx, r, "The rules of the workflow do not allow the move any more: "+v.Reasoning, &v)
	}
	if was := asked.Decision.Target; was != "" && was != v.Target {
		return e.voidReview(ctx, r, fmt.Sprintf("The action led to %q when the review was opened, and leads to %q now.", was, v.Target), &v)
	}
	if asked.Call != nil {
		return e.grantCall(ctx, r, v)
	}
	if tool := e.findGate(inst.Workflow, r.row.Action); tool != "" {
		return e.voidReview(ctx, r, fmt.Sprintf("The action is performed by a call of %s now.", tool), &v)
	}
	end := newReviewEnd(r, judge.Approve)
	ev := e.decisionEvent(requester, judgement{inst: inst, definition: r.definition, question: c, verdict: v}, record.Advanced, r.key)
	ev.Review = &end
	w, err := e.commit(ctx, inst, change{event: ev, resolves: &r.row, end: end, lesson: newForgiveness(c, v)})
	if err != nil {
		return ResolveResult{}, e.resolveError(ctx, r, err)
	}
	return e.newResolveResult(r, w, fmt.Sprintf("Approved; %q was performed.", r.row.Action)), nil
}

// leaveScripts takes out of a case about a call what may read its arguments, which nobody keeps: the
// scripts run again when the call is made with the approval. target is where the action led to.
func leaveScripts(c *judge.Case, target string) {
	c.Checks.Validators = nil
	at := slices.IndexFunc(c.Candidates, func(next judge.Candidate) bool { return next.Target == target })
	if at >= 0 && len(c.Checks.Routes) > 0 {
		c.Candidates, c.Checks.Routes = c.Candidates[at:at+1], nil
	}
}

// newForgiveness clears what the loop guard counts: a person has approved the data.
func newForgiveness(c judge.Case, v judge.Verdict) *store.Lesson {
	if c.Guard == "" {
		return nil
	}
	return &store.Lesson{Guard: c.Guard, Bound: judge.BoundWith(c.Bound, v.Evidence), Principal: c.Principal, Workflow: c.Workflow, Action: c.Action, At: c.Now, Cleared: true}
}

// freshEvidence is the evidence that need not be fetched again: it is not older than the
// definition allows, and is what the history says that was fetched. A clock that was
// turned back makes nothing younger. What holds for the state of files is always asked for again.
func (e *Engine) freshEvidence(row store.Review, asked record.Event) []judge.Evidence {
	var out []judge.Evidence
	for _, recorded := range asked.Decision.Evidence {
		age := e.Now().Sub(recorded.At)
		if recorded.Failure != "" || recorded.Tree != "" || recorded.MaxAge <= 0 || age < 0 || age > recorded.MaxAge {
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

// findChanged finds evidence that says something else now, or says it of other files.
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

// findUnavailable says that evidence which was there when the review was opened cannot be
// had now. That is no change of it: an approval from a process that cannot reach the source
// must not void the review.
func findUnavailable(before, after []judge.Evidence) (error, bool) { //nolint:revive // the error is the answer
	had := map[string]bool{}
	for _, e := range before {
		had[e.Name] = e.Failure == ""
	}
	for _, e := range after {
		if had[e.Name] && e.Failure != "" {
			return newError(CodeUnavailable, "", "The evidence %q has to be fetched again and cannot be had now (%s).", e.Name, e.Failure).
				hint("The review stays open; approve it where its sources are configured and can be reached."), true
		}
	}
	return nil, false
}

// voidReview ends a review that cannot be approved any more, and says why.
func (e *Engine) voidReview(ctx context.Context, r reviewCase, why string, v *judge.Verdict) (ResolveResult, error) {
	if n := e.cfg.Limits.Text; len(why) > n {
		why = strings.ToValidUTF8(why[:n], "")
	}
	var d *record.Decision
	if v != nil {
		d = e.newReviewDecision(r, *v)
		d.Applied, d.Evidence = false, forEvent(v.Evidence)
	}
	return e.finishReview(ctx, r, record.Review{ID: r.row.ID, Status: record.ReviewStale, Reason: why}, d, "Not approved: "+why)
}

// finishReview ends a review that somebody decides by an event of its own.
func (e *Engine) finishReview(ctx context.Context, r reviewCase, end record.Review, d *record.Decision, message string) (ResolveResult, error) {
	ev := e.reviewEvent(r.by, r.row, end)
	ev.Decision, ev.Key = d, r.key
	w, err := e.commit(ctx, r.inst, change{event: ev, resolves: &r.row, end: end})
	if err != nil {
		return ResolveResult{}, e.resolveError(ctx, r, err)
	}
	return e.newResolveResult(r, w, message), nil
}

func (e *Engine) reviewEvent(p Principal, row store.Review, end record.Review) record.Event {
	ev := e.newEvent(p, record.Reviewed)
	end.RequestedBy = row.Principal
	ev.Action, ev.Review = row.Action, &end
	return ev
}

func (e *Engine) newResolveResult(r reviewCase, w change, message string) ResolveResult {
	return ResolveResult{
		Position: newPosition(w.next, r.definition, r.by), Review: *e.summarizeReview(closeRow(*w.resolves, w.end, w.event)),
		Applied: w.event.Kind == record.Advanced, Decision: decisionView(w.event.Decision), Message: message,
	}
}

func (e *Engine) reviewClosed(ctx context.Context, p Principal, at reviewCase) error {
	row, pos := at.row, newPosition(at.inst, at.definition, p)
	how := string(row.Status)
	if row.Status == record.ReviewResolved {
		how = fmt.Sprintf("resolved (%s) by %s", row.Resolution, row.By)
	}
	message := fmt.Sprintf("The review is not open any more: it is %s.", how)
	if shown, err := e.newView(p).withInstance(at.inst, at.definition).renderReview(ctx, row); err == nil && shown.Reason != "" {
		message = fmt.Sprintf("The review is not open any more: it is %s. %s", how, shown.Reason)
	}
	return &Error{Code: CodeReviewClosed, Message: message, Hint: "Nothing was changed.", Current: &pos}
}

// resolveError tells a reviewer who came too late what became of the review.
func (e *Engine) resolveError(ctx context.Context, r reviewCase, err error) error {
	if !errors.Is(err, errReviewClosed) && !errors.Is(err, store.ErrConflict) {
		return err
	}
	now, lerr := e.loadReview(ctx, r.by, r.row.ID)
	switch {
	case lerr != nil:
		return lerr
	case now.row.Status == record.ReviewOpen:
		return conflictAt(now.inst, now.definition, r.by)
	default:
		return e.reviewClosed(ctx, r.by, now)
	}
}

func (e *Engine) replayResolve(ctx context.Context, p Principal, ev record.Event) (ResolveResult, error) {
	pos, err := e.positionAt(ctx, p, ev)
	if err != nil {
		return ResolveResult{}, err
	}
	review, err := e.findReviewView(ctx, p, ev.Review.ID)
	if err != nil {
		return ResolveResult{}, err
	}
	out := ResolveResult{
		Position: pos, Review: *review, Applied: ev.Kind == record.Advanced, Decision: decisionView(ev.Decision), Message: "This was resolved before.", Replayed: true,
	}
	if ev.Review.Status == record.ReviewStale {
		out.Message = "Not approved: " + review.Reason
	}
	return out, nil
}
