package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// SettleCall records how a call ended and the move after it, in one commit. Only the deterministic layers judge
// that move; if they refuse, the call is still settled. CallUnknown opens a review of the call and blocks the
// gate until a person or a late answer settles it.
//
// The error has CodeUnknownCall if the caller made no such call.
func (e *Engine) SettleCall(ctx context.Context, p Principal, req SettleRequest) (SettleResult, error) {
	m := mutation{right: RightAdvance, id: req.ID, check: func() error {
		if req.ID == "" || req.CallID == "" || !req.Outcome.IsKnown() {
			return InternalError("settle a call", fmt.Errorf("it names no instance, no call or no outcome: %q", req.Outcome))
		}
		return nil
	}}
	return mutate(ctx, e, p, m, func(ctx context.Context, inst *instance) (SettleResult, error) { return e.settleCall(ctx, *inst, req) }, nil)
}

// settlement is the end of a call, with everything that is recorded with it.
type settlement struct {
	instance
	open    workflow.OpenCall
	called  record.Event // the event that began the call
	outcome CallOutcome
	result  string         // keyed digest of the answer
	data    document.JSON  // of the action after the call
	badData error          // why data is missing
	end     *record.Review // of the review that waits for a person to settle the call
	row     store.Review
}

func (e *Engine) settleCall(ctx context.Context, inst instance, req SettleRequest) (SettleResult, error) {
	called, settled, err := e.findCallEvents(ctx, inst.ID, req.CallID)
	if err != nil {
		return SettleResult{}, err
	}
	if called.Call == nil || called.Principal != inst.by.ID && inst.by.Role != RoleOperator {
		return SettleResult{}, newError(CodeUnknownCall, "/callId", "You made no call %.80q on this instance.", req.CallID).
			withHint("Settle only calls that were begun, as the principal that began them.")
	}
	at := slices.IndexFunc(inst.Facts.Calls, func(c workflow.OpenCall) bool { return c.ID == req.CallID })
	if at < 0 || req.Outcome == CallUnknown && !inst.Facts.Calls[at].IsOpen() {
		out := SettleResult{Position: inst.position(), CallID: req.CallID, Replayed: true, Decision: decisionView(nil)}
		if settled.Call != nil {
			out.Outcome = settled.Call.Outcome
		}
		return out, nil
	}
	s := settlement{instance: inst, open: inst.Facts.Calls[at], called: called, outcome: req.Outcome}
	if len(req.Result) > 0 {
		s.result = e.cfg.Digester.DigestIn(scopeOf(purposeCall, inst.Owner, inst.Workflow), req.Result)
	}
	if s.outcome == CallUnknown {
		w, err := e.settleUnknown(ctx, s)
		if err != nil {
			return SettleResult{}, err
		}
		return SettleResult{Position: w.next.position(), CallID: req.CallID, Outcome: CallUnknown, Decision: decisionView(nil), Review: e.summarizeReview(*w.opens)}, nil
	}
	s.data, s.badData = readDocument("data", req.Data, e.cfg.Limits.Data)
	if !s.open.IsOpen() {
		s.end = &record.Review{ID: s.open.Review, Status: record.ReviewStale, Reason: "A late answer settled the call."}
		if s.row, err = e.findCallReview(ctx, inst.Instance, s.open); err != nil {
			return SettleResult{}, err
		}
	}
	_, out, err := e.settle(ctx, s)
	return out, err
}

// settle records how a call ended and the move after it.
func (e *Engine) settle(ctx context.Context, s settlement) (change, SettleResult, error) {
	ev := e.newEvent(s.by, record.Settled)
	ev.Action, ev.Review = s.called.Action, s.end
	ev.Call = &record.Call{ID: s.open.ID, Gate: s.open.Gate, Outcome: s.outcome, Result: s.result}
	do := change{event: ev, exempt: true}
	if s.end != nil {
		do.otherReviews = []store.Review{closeRow(s.row, *s.end, ev)}
	}
	out := SettleResult{CallID: s.open.ID, Outcome: s.outcome, Decision: decisionView(nil)}
	switch began := s.called.Call; {
	case began == nil: // a repair may have lost the event, and the actions that it names
	case s.outcome == CallOK:
		out.Action = began.Success
	default:
		out.Action = began.Error
	}
	if out.Action != "" {
		move, err := e.judgeOutcome(ctx, s, out.Action)
		if err != nil {
			out.Decision = newUnrecordedRefusal(err)
		} else {
			do.followUps, out.Decision, out.Moved = []record.Event{move}, decisionView(move.Decision), move.Kind == record.Advanced
		}
	}
	w, err := e.commit(ctx, s.instance, do)
	if code := CodeOf(err); len(do.followUps) > 0 && (code == CodeTooLarge || code == CodeInternal) { // the outcome is recorded in any case
		do.followUps, out.Moved, out.Decision = nil, false, newUnrecordedRefusal(err)
		w, err = e.commit(ctx, s.instance, do)
	}
	if err == nil {
		out.Position = w.next.position()
	}
	return w, out, err
}

// newUnrecordedRefusal returns the decision for a move that could not be judged or recorded.
func newUnrecordedRefusal(err error) Decision {
	why := validators.Finding{Code: string(CodeOf(err)), Message: err.Error()}
	d := record.Decision{Verdict: judge.Verdict{
		Outcome: judge.Reject, Proposed: judge.Reject, Code: why.Code, Confidence: 1, Assurance: judge.AssuranceNone,
		DecidedBy: judge.LayerTransition, Mode: judge.Enforce, Reasoning: why.Message, Findings: []validators.Finding{why},
	}}
	return decisionView(&d)
}

// maxOutcomeTries limits the attempts to judge the move after a call, because an error need not be due to the
// call.
const maxOutcomeTries = 5

// judgeOutcome judges the move after a call by the deterministic layers alone, because the call has
// already happened. The event records the move as applied or refused.
func (e *Engine) judgeOutcome(ctx context.Context, s settlement, action string) (record.Event, error) {
	if s.badData != nil {
		return record.Event{}, s.badData
	}
	inst := s.instance
	inst.by = Principal{ID: s.called.Principal, Role: Role(s.called.Role)}
	if err := inst.checkNotTakenOver(); err != nil {
		return record.Event{}, err
	}
	c, err := e.newCase(inst, workflow.CaseInput{Action: action, Read: s.data})
	if err != nil {
		return record.Event{}, err
	}
	for _, other := range inst.Facts.Calls {
		if other.ID != s.open.ID && other.IsOpen() {
			c.Illegal = append(c.Illegal, validators.Finding{Code: workflow.CodeCallUnsettled, Message: fmt.Sprintf("The call %s of %s is open.", other.ID, other.Gate), Hint: "Wait for its answer."})
		}
	}
	if h := inst.findHold(); h != nil && h.Gate != s.open.Gate {
		c.Illegal = append(c.Illegal, h.Finding)
	}
	skipModel(&c, inst.by)
	v, err := e.cfg.Judge.Decide(ctx, c)
	for try := 1; err != nil && try < maxOutcomeTries && ctx.Err() == nil; try++ {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(try) * 50 * time.Millisecond):
		}
		v, err = e.cfg.Judge.Decide(ctx, c)
	}
	if err != nil {
		return record.Event{}, judgeError(err)
	}
	ev := e.decisionEvent(judgement{instance: inst, question: c, verdict: v}, kindOf(v))
	ev.Call = &record.Call{ID: s.open.ID, Gate: s.open.Gate, Outcome: s.outcome}
	return ev, nil
}

// skipModel restricts a case to the layers that need no model, evidence or review, because the call or run
// that it is about has already happened.
func skipModel(c *judge.Case, p Principal) {
	c.Rubric, c.Evidence, c.ReviewPath = judge.Rubric{Mode: judge.Enforce}, nil, false
	c.Guard, c.Identity, c.Bound, c.Caller = "", "", "", p.ID
}

// settleUnknown settles a call without an answer as unknown; a person has to decide whether it happened.
func (e *Engine) settleUnknown(ctx context.Context, s settlement) (change, error) {
	ev := e.newEvent(s.by, record.Settled)
	ev.Action = s.called.Action
	row := e.newOpenReview(s.instance, record.PriorityHigh, ev.Time)
	row.Call, row.Tool, row.Principal, row.Role, row.Action = s.open.ID, s.open.Gate, s.open.Principal, s.called.Role, s.called.Action
	ev.Review = newOpening(row)
	ev.Call = &record.Call{ID: s.open.ID, Gate: s.open.Gate, Outcome: CallUnknown}
	return e.commit(ctx, s.instance, change{event: ev, opens: &row, exempt: true})
}

// findCallReview returns the review of a call with an unknown outcome. A review that a repair lost is
// recreated.
func (past history) findCallReview(ctx context.Context, inst record.Instance, unknown workflow.OpenCall) (store.Review, error) {
	row, err := past.findReview(ctx, unknown.Review)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Review{
			ID: unknown.Review, Status: record.ReviewOpen, Call: unknown.ID, Tool: unknown.Gate, Instance: inst.ID, Workflow: inst.Workflow, Principal: unknown.Principal,
		}, nil
	case err != nil:
		return store.Review{}, StoreError("read the review", err)
	}
	return row, nil
}

// isOverdueCall reports whether an open call is overdue: its deadline has passed, or its process has
// ended.
func (e *Engine) isOverdueCall(c workflow.OpenCall) bool {
	return c.IsOpen() && (!e.Now().Before(c.Deadline) || e.cfg.Abandoned != nil && e.cfg.Abandoned(c.ID))
}

// settleOverdueOf settles the overdue calls of an instance as unknown.
func (e *Engine) settleOverdueOf(ctx context.Context, inst *instance) error {
	for {
		at := slices.IndexFunc(inst.Facts.Calls, e.isOverdueCall)
		if at < 0 {
			return nil
		}
		open := inst.Facts.Calls[at]
		called, _, err := e.findCallEvents(ctx, inst.ID, open.ID)
		if err != nil {
			return err
		}
		w, err := e.settleUnknown(ctx, settlement{instance: instance{Instance: inst.Instance, by: deadlinePrincipal}, open: open, called: called})
		switch {
		case err == nil:
			inst.Instance = w.next.Instance
		case errors.Is(err, store.ErrConflict): // another request settled it
			if inst.Instance, err = e.load(ctx, inst.ID); err != nil {
				return StoreError("load the instance", err)
			}
		default:
			return err
		}
	}
}

// SettleOverdue settles open calls as unknown if their deadline has passed or their process has ended, and
// returns how many instances had such calls. Any process may call it at any time; it does nothing if
// another process is already doing it.
func (e *Engine) SettleOverdue(ctx context.Context) (int, error) {
	var due []record.Instance
	for inst, err := range e.cfg.Store.Instances(store.BulkRead(ctx), store.InstanceQuery{OpenCalls: true}) {
		if err != nil {
			return 0, StoreError("list the instances", err)
		}
		if slices.ContainsFunc(inst.Facts.Calls, e.isOverdueCall) {
			due = append(due, inst)
		}
	}
	if len(due) == 0 {
		return 0, nil
	}
	done := 0
	err := e.tryLead(ctx, jobCalls, func(ctx context.Context) error {
		var errs []error
		for _, inst := range due { // one that cannot be settled must not hold up the others
			inst, err := e.values.OpenInstance(ctx, inst)
			if err == nil {
				err = e.settleOverdueOf(ctx, &instance{Instance: inst})
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			done++
		}
		return errors.Join(errs...)
	})
	return done, err
}

// resolveCall records a person's finding about a call: it happened (approve), or it did not (reject).
func (e *Engine) resolveCall(ctx context.Context, r reviewCase) (ResolveResult, error) {
	at := slices.IndexFunc(r.Facts.Calls, func(c workflow.OpenCall) bool { return c.ID == r.row.Call && c.Review == r.row.ID })
	if at < 0 {
		return ResolveResult{}, e.reviewClosed(ctx, r)
	}
	open := r.Facts.Calls[at]
	switch {
	case r.row.IsStep() && (r.by.ID == open.Principal || r.by.ID == r.Owner):
		return ResolveResult{}, &Error{Code: CodeForbidden, Message: "The run acts for you, so you may not decide whether its call happened.", Hint: "Leave the review to another reviewer."}
	case r.by.ID == open.Principal, r.by.ID == r.Owner:
		return ResolveResult{}, &Error{Code: CodeForbidden, Message: "You made this call yourself, or own the instance.", Hint: "Leave it to another reviewer."}
	case r.req.Channel == record.ChannelClient:
		return ResolveResult{}, &Error{Code: CodeForbidden, Message: "A review of a call cannot be resolved through the agent's own client.", Hint: "Use the command line, or a reviewer's own client."}
	}
	called, _, err := e.findCallEvents(ctx, r.ID, open.ID)
	if err != nil {
		return ResolveResult{}, err
	}
	if r.row.IsStep() {
		return e.resolveStep(ctx, r, open, called)
	}
	end := newReviewEnd(r)
	end.Reason = r.maskWords().scrubText(r.req.Reason)
	s := settlement{
		instance: r.instance, open: open, called: called, outcome: CallOK, data: document.ReadTrusted(emptyData), end: &end, row: r.row,
	}
	message := fmt.Sprintf("Recorded that the call of %s happened.", open.Gate)
	if r.req.Decision == judge.Reject {
		s.outcome, message = CallNotSent, fmt.Sprintf("Recorded that the call of %s did not happen.", open.Gate)
	}
	w, out, err := e.settle(ctx, s)
	if err != nil {
		return ResolveResult{}, err
	}
	return ResolveResult{
		Position: out.Position, Review: *e.summarizeReview(closeRow(r.row, end, w.event)),
		Applied: out.Moved, Decision: out.Decision, Message: message,
	}, nil
}

// grantCall records a person's approval of a call: exactly that call may be made, once.
func (e *Engine) grantCall(ctx context.Context, r reviewCase, v judge.Verdict) (ResolveResult, error) {
	end := newReviewEnd(r)
	ev := e.reviewEvent(r.by, r.row, end)
	ev.Decision, ev.Call = e.newReviewDecision(r, v), r.opening.Call
	ev.Decision.Applied, ev.Decision.Evidence = false, trimEvidence(v.Evidence)
	ev.Grant = &workflow.Grant{
		Review: r.row.ID, Gate: r.opening.Call.Gate, Action: r.row.Action, Principal: r.opening.Principal, Arguments: r.opening.Call.Arguments,
		Until: ev.Time.Add(e.cfg.GrantFor),
	}
	message := fmt.Sprintf("Approved: the same call of %s may be made once, until %s.", ev.Grant.Gate, formatTime(ev.Grant.Until))
	return e.commitReview(ctx, r, change{event: ev, resolves: &r.row, end: end}, message)
}
