package engine

import (
	"context"
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
	ID string // the review's
	// Decision is approve or reject.
	Decision judge.Outcome
	// Reason is required.
	Reason string
	// Channel says how the person's word came here; "" is record.ChannelAPI.
	Channel record.Channel
	Key     string // idempotency key, "" for none
}

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
	if err := authorize(p, RightResolve); err != nil {
		return ResolveResult{}, err
	}
	if err := e.checkResolve(&req); err != nil {
		return ResolveResult{}, err
	}
	key, err := e.newKey(p, RightResolve, req.ID, req.Key, func() []string { return []string{string(req.Decision), req.Reason} })
	if err != nil {
		return ResolveResult{}, err
	}
	return runOnce(ctx, e, p, key,
		func(ctx context.Context, ev record.Event) (ResolveResult, error) { return e.replayResolve(ctx, p, ev) },
		func(ctx context.Context) (ResolveResult, error) { return e.resolve(ctx, p, req, key) })
}

func (e *Engine) checkResolve(req *ResolveRequest) error {
	if req.Channel == "" {
		req.Channel = record.ChannelAPI
	}
	req.Reason = strings.TrimSpace(req.Reason)
	switch {
	case req.Decision != judge.Approve && req.Decision != judge.Reject:
		return &Error{Code: CodeInvalidArgument, Path: "/decision", Message: fmt.Sprintf("A review is resolved by approve or reject, not by %.40q.", req.Decision), Hint: "There is no default: say which."}
	case req.Reason == "":
		return missingField("reason", "One sentence: it is recorded, and whoever asked for the move reads it.")
	case req.Channel == record.ChannelClient && !e.cfg.ClientReviews:
		return &Error{Code: CodeForbidden, Message: "Reviews through the agent's own client are not allowed here.", Hint: "Use the command line, or a reviewer's own client."}
	}
	return e.CheckText("reason", req.Reason)
}

func (e *Engine) resolve(ctx context.Context, p Principal, req ResolveRequest, key *record.Key) (ResolveResult, error) {
	row, inst, l, err := e.loadReview(ctx, p, req.ID)
	if err != nil {
		return ResolveResult{}, err
	}
	if row.Status == record.ReviewOpen && e.isOverdue(row) {
		if err := e.expireReview(ctx, row); err != nil {
			return ResolveResult{}, err
		}
		if row, inst, l, err = e.loadReview(ctx, p, req.ID); err != nil {
			return ResolveResult{}, err
		}
	}
	if row.Status != record.ReviewOpen {
		return ResolveResult{}, e.reviewClosed(ctx, row, inst, l, p)
	}
	asked, err := e.openingEvent(ctx, inst.ID, row.Seq)
	if err != nil {
		return ResolveResult{}, err
	}
	if err := mayResolve(p, asked, inst, l.def, req.Channel); err != nil {
		return ResolveResult{}, err
	}
	req.Reason = maskWords(inst, l, row.Data).scrubText(req.Reason)
	if !e.isBound(row, inst, asked) {
		return e.voidReview(ctx, p, key, row, inst, l, "What is stored of this review is not what was asked; it may have been changed.", nil)
	}
	if err := mayMove(inst, l, p); err != nil && req.Decision == judge.Approve {
		return ResolveResult{}, err
	}
	if req.Decision == judge.Reject {
		return e.rejectReview(ctx, p, req, key, row, inst, l)
	}
	return e.approveReview(ctx, p, req, key, row, inst, l, asked)
}

// mayResolve keeps those from resolving a review who have a part in what it is about.
func mayResolve(p Principal, asked record.Event, inst record.Instance, d *workflow.Definition, through record.Channel) error {
	forbidden := func(message string) error {
		return &Error{Code: CodeForbidden, Message: message, Hint: "Leave it to another reviewer."}
	}
	var t *workflow.Transition
	if s := d.States[asked.From]; s != nil {
		t = s.Transitions[asked.Action]
	}
	switch {
	case p.ID == asked.Principal:
		return forbidden("You asked for this move yourself.")
	case p.ID == inst.Owner:
		return forbidden("You own this instance.")
	case through == record.ChannelClient && asked.Decision.Rubric.Risk == judge.RiskHigh:
		return &Error{Code: CodeForbidden, Message: fmt.Sprintf("%q is of high risk; it is not decided through the agent's own client.", asked.Action), Hint: "Use the command line, or a reviewer's own client."}
	case t == nil:
		return nil // the layers will say that the action is gone
	}
	for _, before := range t.NotBy {
		if slices.Contains(inst.Facts.Performed[before], p.ID) {
			return forbidden(fmt.Sprintf("You performed %q on this instance, and whoever did may not decide %q.", before, asked.Action))
		}
	}
	return nil
}

// isBound reports whether a stored review is the one that the history says, about the
// present revision, with the data that were asked with.
func (e *Engine) isBound(row store.Review, inst record.Instance, asked record.Event) bool {
	at := slices.IndexFunc(inst.Facts.Reviews, func(o workflow.OpenReview) bool { return o.ID == row.ID })
	if at < 0 || asked.Review == nil || asked.Review.ID != row.ID {
		return false
	}
	scope, question := bindReview(inst, asked.Principal, asked.Action, row.Data, asked.Decision.Evidence)
	return asked.Review.Digest == inst.Facts.Reviews[at].Digest && e.cfg.Digester.Matches(asked.Review.Digest, scope, question)
}

// rejectReview records a person's no.
func (e *Engine) rejectReview(ctx context.Context, p Principal, req ResolveRequest, key *record.Key, row store.Review, inst record.Instance, l loaded) (ResolveResult, error) {
	why := validators.Finding{Code: judge.CodeReviewRejected, Message: fmt.Sprintf("A reviewer rejected it: %s", req.Reason)}
	d := record.Decision{ID: "dec-" + e.cfg.NewID(), ContextDigest: e.digestContext(inst, inst.Context), Verdict: judge.Verdict{
		Outcome: judge.Reject, Proposed: judge.Reject, Code: why.Code, Target: row.Target, Confidence: 1, Assurance: judge.AssuranceHuman,
		DecidedBy: judge.ByReviewer, Mode: judge.Enforce, Reasoning: why.Message, Findings: []validators.Finding{why},
		Opinions: []judge.Opinion{{Layer: judge.ByReviewer, Outcome: judge.Reject, Confidence: 1, Assurance: judge.AssuranceHuman, Reasoning: req.Reason}},
	}}
	end := record.Review{ID: row.ID, Status: record.ReviewResolved, Resolution: judge.Reject, By: p.ID, Channel: req.Channel, Reason: req.Reason}
	ev := e.reviewEvent(p, inst, row, end)
	ev.Decision, ev.Key = &d, key
	w, err := e.commit(ctx, inst, change{event: ev, resolves: &resolution{row: row, end: end}})
	if err != nil {
		return ResolveResult{}, e.resolveError(ctx, p, row, err)
	}
	return e.newResolveResult(p, w, l, closeRow(row, end, w.event), d, "Rejected; the state stays as it is."), nil
}

// approveReview asks the layers again and makes the move.
func (e *Engine) approveReview(ctx context.Context, p Principal, req ResolveRequest, key *record.Key, row store.Review, inst record.Instance, l loaded, asked record.Event) (ResolveResult, error) {
	requester := Principal{ID: asked.Principal, Role: Role(asked.Role)}
	overlays, hash, err := e.loadOverlays(ctx, l.stored, inst.Owner)
	if err != nil {
		return ResolveResult{}, err
	}
	c, err := e.newCase(inst, l, requester, workflow.CaseInput{Action: row.Action, Read: document.Known(row.Data), Overlays: overlays, JudgeConfigHash: hash})
	if err != nil {
		return ResolveResult{}, err
	}
	c.Digest, c.Held, c.Caller = e.digestEvidence(inst, asked.Decision.Evidence), e.freshEvidence(row, asked), p.ID
	v, err := e.cfg.Judge.Approve(ctx, c, judge.Review{By: p.ID, Reason: req.Reason})
	if err != nil {
		return ResolveResult{}, judgeError(err)
	}
	if lost, ok := findUnavailable(asked.Decision.Evidence, v.Evidence); ok {
		return ResolveResult{}, lost
	}
	if name, ok := findChanged(asked.Decision.Evidence, v.Evidence); ok {
		return e.voidReview(ctx, p, key, row, inst, l, fmt.Sprintf("The evidence %q has changed since the review was opened.", name), &v)
	}
	if !v.Applied {
		return e.voidReview(ctx, p, key, row, inst, l, "The rules of the workflow do not allow the move any more: "+v.Reasoning, &v)
	}
	if was := asked.Decision.Target; was != "" && was != v.Target {
		return e.voidReview(ctx, p, key, row, inst, l, fmt.Sprintf("The action led to %q when the review was opened, and leads to %q now.", was, v.Target), &v)
	}
	end := record.Review{ID: row.ID, Status: record.ReviewResolved, Resolution: judge.Approve, By: p.ID, Channel: req.Channel, Reason: req.Reason}
	j := judgement{inst: inst, loaded: l, question: c, verdict: v}
	ev := e.decisionEvent(requester, j, record.Advanced, key)
	ev.Review = &end
	w, err := e.commit(ctx, inst, change{event: ev, resolves: &resolution{row: row, end: end}, lesson: newForgiveness(c, v)})
	if err != nil {
		return ResolveResult{}, e.resolveError(ctx, p, row, err)
	}
	return e.newResolveResult(p, w, l, closeRow(row, end, w.event), *ev.Decision, fmt.Sprintf("Approved; %q was performed.", row.Action)), nil
}

// newForgiveness clears what the loop guard counts: a person has approved the data.
func newForgiveness(c judge.Case, v judge.Verdict) *store.Lesson {
	if c.Guard == "" {
		return nil
	}
	return &store.Lesson{Guard: c.Guard, Bound: judge.BoundBy(c.Bound, v.Evidence), Principal: c.Principal, Workflow: c.Workflow, Action: c.Action, At: c.Now, Cleared: true}
}

// freshEvidence is the evidence that need not be fetched again: it is not older than the
// definition allows, and is what the history says that was fetched. A clock that was
// turned back makes nothing younger.
func (e *Engine) freshEvidence(row store.Review, asked record.Event) []judge.Evidence {
	var out []judge.Evidence
	for _, recorded := range asked.Decision.Evidence {
		age := e.now().Sub(recorded.At)
		if recorded.Failure != "" || recorded.MaxAge <= 0 || age < 0 || age > recorded.MaxAge {
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

// findChanged names the first piece of evidence that is not what it was.
func findChanged(before, after []judge.Evidence) (string, bool) {
	now := map[string]string{}
	for _, e := range after {
		now[e.Name] = e.Sameness()
	}
	for _, e := range before {
		if same, ok := now[e.Name]; ok && same != e.Sameness() {
			return e.Name, true
		}
	}
	return "", false
}

// findUnavailable says that evidence which was there when the review was opened cannot be
// had now. That is no change of it: whoever approves from a process that cannot reach the
// source must not void the review.
func findUnavailable(before, after []judge.Evidence) (error, bool) { //nolint:revive // the error is the answer
	had := map[string]bool{}
	for _, e := range before {
		had[e.Name] = e.Failure == ""
	}
	for _, e := range after {
		if had[e.Name] && e.Failure != "" {
			return &Error{
				Code:    CodeUnavailable,
				Message: fmt.Sprintf("The evidence %q has to be fetched again and cannot be had now (%s).", e.Name, e.Failure),
				Hint:    "The review stays open; approve it where its sources are configured and can be reached.",
			}, true
		}
	}
	return nil, false
}

// voidReview ends a review that cannot be approved any more, and says why.
func (e *Engine) voidReview(ctx context.Context, p Principal, key *record.Key, row store.Review, inst record.Instance, l loaded, why string, v *judge.Verdict) (ResolveResult, error) {
	if n := e.cfg.Limits.Text; len(why) > n {
		why = strings.ToValidUTF8(why[:n], "")
	}
	end := record.Review{ID: row.ID, Status: record.ReviewStale, Reason: why}
	var d *record.Decision
	if v != nil {
		d = &record.Decision{ID: "dec-" + e.cfg.NewID(), Verdict: *v, ContextDigest: e.digestContext(inst, inst.Context)}
		d.Applied, d.Evidence = false, forEvent(v.Evidence)
	}
	w, err := e.endReview(ctx, p, key, inst, row, end, d)
	if err != nil {
		return ResolveResult{}, e.resolveError(ctx, p, row, err)
	}
	out := record.Decision{}
	if d != nil {
		out = *d
	}
	return e.newResolveResult(p, w, l, closeRow(row, end, w.event), out, "Not approved: "+why), nil
}

// endReview ends a review by an event of its own.
func (e *Engine) endReview(ctx context.Context, p Principal, key *record.Key, inst record.Instance, row store.Review, end record.Review, d *record.Decision) (change, error) {
	ev := e.reviewEvent(p, inst, row, end)
	ev.Decision, ev.Key = d, key
	return e.commit(ctx, inst, change{event: ev, resolves: &resolution{row: row, end: end}})
}

func (e *Engine) reviewEvent(p Principal, inst record.Instance, row store.Review, end record.Review) record.Event {
	ev := e.newEvent(p, inst, record.Reviewed)
	ev.Action, ev.Review = row.Action, &end
	return ev
}

func (e *Engine) newResolveResult(p Principal, w change, l loaded, row store.Review, d record.Decision, message string) ResolveResult {
	return ResolveResult{
		Position: newPosition(w.next, l, p), Review: *e.summarizeReview(row), Applied: w.event.Kind == record.Advanced,
		Decision: decisionView(d), Message: message,
	}
}

// reviewClosed says what became of a review that is not open.
func (e *Engine) reviewClosed(ctx context.Context, row store.Review, inst record.Instance, l loaded, p Principal) error {
	pos := newPosition(inst, l, p)
	how := string(row.Status)
	if row.Status == record.ReviewResolved {
		how = fmt.Sprintf("resolved (%s) by %s", row.Resolution, row.By)
	}
	message := fmt.Sprintf("The review is not open any more: it is %s.", how)
	if shown, err := e.newView(p).withInstance(inst, l).renderReview(ctx, row); err == nil && shown.Reason != "" {
		message = fmt.Sprintf("The review is not open any more: it is %s. %s", how, shown.Reason)
	}
	return &Error{Code: CodeReviewClosed, Message: message, Hint: "Nothing was changed.", Current: &pos}
}

// resolveError tells a reviewer who came too late what became of the review.
func (e *Engine) resolveError(ctx context.Context, p Principal, row store.Review, err error) error {
	_, late := errors.AsType[*reviewClosedError](err)
	if !late && !errors.Is(err, store.ErrConflict) {
		return err
	}
	now, inst, l, rerr := e.loadReview(ctx, p, row.ID)
	switch {
	case rerr != nil:
		return rerr
	case now.Status == record.ReviewOpen:
		return conflictAt(inst, l, p)
	default:
		return e.reviewClosed(ctx, now, inst, l, p)
	}
}

func (e *Engine) replayResolve(ctx context.Context, p Principal, ev record.Event) (ResolveResult, error) {
	pos, err := e.positionAt(ctx, p, ev)
	if err != nil {
		return ResolveResult{}, err
	}
	row, err := store.FindReview(ctx, e.cfg.Store, ev.Review.ID)
	if err != nil {
		return ResolveResult{}, storeError("read the review", err)
	}
	show := e.newView(p)
	review, err := show.renderReview(ctx, row)
	if err != nil {
		return ResolveResult{}, err
	}
	out := ResolveResult{
		Position: pos, Review: review, Applied: ev.Kind == record.Advanced, Message: "This was resolved before.", Replayed: true,
	}
	var d record.Decision
	if ev.Decision != nil {
		d = *ev.Decision
	}
	if out.Decision = decisionView(d); ev.Review.Status == record.ReviewStale {
		out.Message = "Not approved: " + review.Reason
	}
	return out, nil
}
