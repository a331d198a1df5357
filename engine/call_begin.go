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

// BeginCall judges a call of another server's tool before it is sent. In one commit it performs the action that
// the call stands for and records the call as open. While the call is open, nothing else moves the instance.
// Only CallGo allows the caller to send the call. A refusal is a result. A repeated key, or the same arguments
// while the call is open, sends nothing a second time.
//
// The error is an *Error: no decision was possible, and nothing was recorded.
func (e *Engine) BeginCall(ctx context.Context, p Principal, req CallRequest) (CallResult, error) {
	var g *gatedCall
	m := mutation{
		right: RightAdvance, scope: rightCall, id: req.ID, key: req.Key, isMove: true, isJudged: true,
		content: func() []string {
			return []string{req.Gate, string(g.arguments.Canonical()), req.Action, string(g.data.Canonical())}
		},
		check: func() (err error) { g, err = readCall(req, e.cfg.Limits); return err },
	}
	return mutate(ctx, e, p, m, func(ctx context.Context, inst *instance) (CallResult, error) { return e.beginCall(ctx, inst, g) }, e.replayCall)
}

// gatedCall is a parsed CallRequest.
type gatedCall struct {
	CallRequest
	arguments, data document.JSON
	digest          string // keyed digest of the call, as recorded
}

func readCall(req CallRequest, limits Limits) (*gatedCall, error) {
	switch {
	case req.ID == "":
		return nil, MissingField("id", "The id that start returned.")
	case req.Gate == "" || len(req.States) == 0 || req.Timeout <= 0:
		return nil, InternalError("begin a call", errors.New("it names no gate, no states or no timeout"))
	}
	limit := limits.Arguments
	if req.MaxArguments > 0 {
		limit = min(limit, req.MaxArguments)
	}
	arguments, err := readWith(workflow.ReadArguments, "arguments", req.Arguments, len(req.Arguments), limit)
	if err != nil {
		return nil, err
	}
	data, err := readDocument("data", req.Data, limits.Data)
	return &gatedCall{CallRequest: req, arguments: arguments, data: data}, err
}

// reference returns the call as decisions record it, nil for a nil call.
func (g *gatedCall) reference() *record.Call {
	if g == nil {
		return nil
	}
	return &record.Call{Gate: g.Gate, Arguments: g.digest}
}

// matches reports whether a recorded decision was about the same call, or both are without a call.
func (g *gatedCall) matches(recorded *record.Call) bool {
	if g == nil || recorded == nil {
		return g == nil && recorded == nil
	}
	return recorded.Gate == g.Gate && recorded.Arguments == g.digest
}

// mayRepeat reports whether a call with an unknown outcome may be sent again.
func (g *gatedCall) mayRepeat(inst *instance, unknown workflow.OpenCall) bool {
	return g.Repeatable && !unknown.IsOpen() && unknown.Principal == inst.by.ID && unknown.Revision == inst.Revision
}

// findObstacles returns the rules of the gate that the call violates.
func (g *gatedCall) findObstacles(inst instance) []validators.Finding {
	actions := slices.DeleteFunc([]string{g.Action, g.Success, g.Error}, func(action string) bool { return action == "" })
	rule := workflow.CallRule{Gate: g.Gate, States: g.States, Actions: actions, Moves: g.Action != "", MaxCalls: g.MaxCalls, Bound: g.Bound}
	return inst.def.FindCallObstacles(rule, inst.State, describeEnd(inst.Instance), inst.Facts, g.arguments, document.ReadTrusted(inst.Context))
}

// digestCall returns the keyed digest by which a call is recognised: the tool with exactly these
// arguments.
func digestCall(keyed Digester, inst *instance, g *gatedCall) string {
	text := digestParts("gavel/call/v1", g.Gate, g.Upstream, g.Tool, string(g.arguments.Canonical()))
	return keyed.DigestIn(scopeOf(purposeCall, inst.Owner, inst.Workflow), []byte(text))
}

func (e *Engine) beginCall(ctx context.Context, inst *instance, g *gatedCall) (CallResult, error) {
	if err := e.settleOverdueOf(ctx, inst); err != nil {
		return CallResult{}, err
	}
	g.digest = digestCall(e.cfg.Digester, inst, g)
	same := slices.IndexFunc(inst.Facts.Calls, func(c workflow.OpenCall) bool {
		return c.Gate == g.Gate && c.Arguments == g.digest
	})
	switch {
	case g.CheckOnly && (same < 0 || g.mayRepeat(inst, inst.Facts.Calls[same])):
		return e.checkCall(ctx, *inst, g)
	case same >= 0 && g.mayRepeat(inst, inst.Facts.Calls[same]):
		return e.repeatCall(ctx, *inst, g, inst.Facts.Calls[same])
	case same >= 0:
		return e.describeCall(ctx, *inst, inst.Facts.Calls[same].ID)
	case g.Action == "":
		return e.recordCall(ctx, *inst, g)
	}
	j, done, err := e.judgeAction(ctx, inst, workflow.CaseInput{Action: g.Action, Read: g.data}, g)
	if err != nil {
		return CallResult{}, err
	}
	defer done()
	if !j.verdict.Applied {
		return newRefusedCall(e.recordOrJoin(ctx, j))
	}
	ev := e.decisionEvent(j, record.Advanced)
	called := e.newCalledEvent(inst.by, g, "call-"+e.cfg.NewID())
	ev.Call.ID = called.Call.ID
	if j.grant != nil {
		ev.Review = &record.Review{ID: j.grant.ID, Status: record.ReviewResolved, Resolution: judge.Approve, By: j.grant.By}
	}
	return e.commitCall(ctx, j.instance, change{event: ev, followUps: []record.Event{called}, lesson: newLesson(j.question, j.verdict, true)}, *called.Call)
}

func (e *Engine) newCalledEvent(p Principal, g *gatedCall, id string) record.Event {
	if g.Hold != nil {
		g.Hold(id)
	}
	ev := e.newEvent(p, record.Called)
	ev.Action = g.Action
	ev.Call = &record.Call{
		ID: id, Gate: g.Gate, Upstream: g.Upstream, Tool: g.Tool, Pin: g.Pin, Arguments: g.digest, Deadline: ev.Time.Add(g.Timeout),
		Success: g.Success, Error: g.Error,
	}
	return ev
}

// commitCall commits the beginning of a call.
func (e *Engine) commitCall(ctx context.Context, inst instance, do change, c record.Call) (CallResult, error) {
	w, err := e.commit(ctx, inst, do)
	if err != nil {
		return CallResult{}, err
	}
	return CallResult{Position: w.next.position(), Answer: CallGo, CallID: c.ID, Deadline: c.Deadline, Decision: decisionView(w.event.Decision)}, nil
}

// newRefusedCall converts the decision that prevents a call into its result.
func newRefusedCall(r AdvanceResult, err error) (CallResult, error) {
	out := CallResult{Position: r.Position, Answer: CallRefused, Decision: r.Decision, Review: r.Review, Replayed: r.Replayed}
	if r.Decision.Outcome == judge.Escalate || r.Review != nil && r.Review.Decision == judge.Approve {
		out.Answer = CallParked
	}
	return out, err
}

// recordCall begins a call that stands for no action, or records why it is refused.
func (e *Engine) recordCall(ctx context.Context, inst instance, g *gatedCall) (CallResult, error) {
	if !g.Exempt {
		if err := e.checkEventQuota(ctx, inst); err != nil {
			return CallResult{}, err
		}
	}
	if obstacles := g.findObstacles(inst); len(obstacles) > 0 {
		j, err := e.judgeObstacles(ctx, inst, g, obstacles)
		if err != nil {
			return CallResult{}, err
		}
		return newRefusedCall(e.recordJudgement(ctx, j))
	}
	ev := e.newCalledEvent(inst.by, g, "call-"+e.cfg.NewID())
	return e.commitCall(ctx, inst, change{event: ev}, *ev.Call)
}

// judgeObstacles returns the judgement of a call that violates rules of its gate.
func (e *Engine) judgeObstacles(ctx context.Context, inst instance, g *gatedCall, obstacles []validators.Finding) (judgement, error) {
	c, err := e.newCase(inst, workflow.CaseInput{Read: g.data})
	if err != nil {
		return judgement{}, err
	}
	c.Illegal = obstacles
	v, err := e.askJudge(ctx, inst.by, c, nil)
	return judgement{instance: inst, question: c, verdict: v, call: g}, err
}

// checkCall checks a call against the rules of its gate and records nothing.
func (e *Engine) checkCall(ctx context.Context, inst instance, g *gatedCall) (CallResult, error) {
	out := CallResult{Position: inst.position(), Answer: CallGo}
	obstacles := g.findObstacles(inst)
	if len(obstacles) == 0 {
		return out, nil
	}
	j, err := e.judgeObstacles(ctx, inst, g, obstacles)
	out.Answer, out.Decision = CallRefused, decisionView(&record.Decision{Verdict: j.verdict})
	return out, err
}

// repeatCall sends a call with an unknown outcome again: the operator has declared that its tool performs a
// call with the same id only once.
func (e *Engine) repeatCall(ctx context.Context, inst instance, g *gatedCall, unknown workflow.OpenCall) (CallResult, error) {
	row, err := e.findCallReview(ctx, inst.Instance, unknown)
	if err != nil {
		return CallResult{}, err
	}
	ev := e.newCalledEvent(inst.by, g, unknown.ID)
	ev.Call.Repeats = true
	ev.Review = &record.Review{ID: unknown.Review, Status: record.ReviewStale, Reason: "The call was made again."}
	return e.commitCall(ctx, inst, change{event: ev, otherReviews: []store.Review{closeRow(row, *ev.Review, ev)}}, *ev.Call)
}

// replayCall answers a repeated key with the present state of the call, or with the original refusal.
func (e *Engine) replayCall(ctx context.Context, now instance, ev record.Event) (CallResult, error) {
	if ev.Call == nil || ev.Call.ID == "" || ev.Kind == record.Refused {
		return newRefusedCall(e.replayAdvance(ctx, now, ev))
	}
	out, err := e.describeCall(ctx, now, ev.Call.ID)
	out.Replayed = true
	return out, err
}

// describeCall answers a request for a call that was made before.
func (e *Engine) describeCall(ctx context.Context, inst instance, id string) (CallResult, error) {
	out := CallResult{Position: inst.position(), Answer: CallKnown, CallID: id}
	at := slices.IndexFunc(inst.Facts.Calls, func(c workflow.OpenCall) bool { return c.ID == id })
	if at < 0 {
		_, settled, err := e.findCallEvents(ctx, inst.ID, id)
		if err == nil && settled.Call != nil {
			out.Outcome = settled.Call.Outcome
		}
		return out, err
	}
	open := inst.Facts.Calls[at]
	out.Deadline = open.Deadline
	if open.IsOpen() {
		return out, nil
	}
	row, err := e.findCallReview(ctx, inst.Instance, open)
	out.Outcome, out.Review = CallUnknown, e.summarizeReview(row)
	return out, err
}

// FindCall returns the id of the call that a principal began with an idempotency key, for a caller that
// kept only the key. The error has CodeUnknownCall if no call began with the key, or if the call was
// refused.
func (e *Engine) FindCall(ctx context.Context, p Principal, id, key string) (callID string, err error) {
	if err := Authorize(p, RightAdvance); err != nil {
		return "", err
	}
	ev, err := e.cfg.Store.ByKey(ctx, scopeKey(p, rightCall, id, key))
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return "", StoreError("look up the idempotency key", err)
	case err != nil || ev.Call == nil || ev.Call.ID == "" || ev.Kind == record.Refused:
		return "", newError(CodeUnknownCall, "/idempotencyKey", "You began no call on this instance with the key %.80q.", key)
	}
	return ev.Call.ID, nil
}

// findCallEvents returns the event that began a call and the last one that settled it; either is zero if
// there is none.
func (past history) findCallEvents(ctx context.Context, instance, id string) (called, settled record.Event, err error) {
	for ev, err := range past.store.Events(ctx, store.EventQuery{Instance: instance, Kinds: []record.Kind{record.Called, record.Settled}}) {
		switch {
		case err != nil:
			return called, settled, StoreError("read the history", err)
		case ev.Call.ID != id:
		case ev.Kind == record.Called:
			called = ev
		default:
			settled = ev
		}
	}
	return called, settled, nil
}

// findGrant returns the review in which a person approved exactly this call, or nil.
func (e *Engine) findGrant(ctx context.Context, inst instance, action string, call *gatedCall) (*store.Review, error) {
	if call == nil {
		return nil, nil //nolint:nilnil // nothing was granted
	}
	now := e.Now()
	for _, g := range inst.Facts.Grants {
		if g.Gate != call.Gate || g.Arguments != call.digest || g.Principal != inst.by.ID || g.Action != action || !now.Before(g.Until) {
			continue
		}
		row, err := store.FindReview(ctx, e.cfg.Store, g.Review)
		switch {
		case errors.Is(err, store.ErrNotFound): // a repair may have lost it
			continue
		case err != nil:
			return nil, StoreError("read the review", err)
		}
		return &row, nil
	}
	return nil, nil //nolint:nilnil // nothing was granted
}

// checkMove rejects an action ("" for none) that only a gate performs or that must wait in the present state
// (findHold). It rejects every request while a call is open, after settling overdue calls.
func (e *Engine) checkMove(ctx context.Context, inst *instance, action string) error {
	if tool := e.findGate(inst.Workflow, action); tool != "" {
		return inst.gatedAction(action, tool)
	}
	if err := e.settleOverdueOf(ctx, inst); err != nil {
		return err
	}
	for _, c := range inst.Facts.Calls {
		if c.IsOpen() {
			out := newError(CodeCallOpen, "", "The call %s of %s is open until %s; until it ends, nothing else can move the instance.", c.ID, c.Gate, formatTime(c.Deadline)).
				withHint("Wait for its answer, then look at the status.").withPosition(inst.position())
			out.RetryAfter = max(time.Second, c.Deadline.Sub(e.Now()))
			return out
		}
	}
	if h := inst.findHold(); h != nil && action != "" { // cancel and rollback remain possible
		out := newError(CodeCallOpen, "", "%s", h.Finding.Message).withHint("Wait until it has, then look at the status.").withPosition(inst.position())
		out.RetryAfter = time.Second
		return out
	}
	return nil
}

// findHold returns what keeps the instance in its state, or nil. Only an operator's definition can keep it
// there.
func (i instance) findHold() *workflow.Hold {
	if !i.stored.Operator {
		return nil
	}
	return i.def.FindHold(i.State, i.Facts)
}

func (i instance) gatedAction(action, tool string) *Error {
	return newError(CodeGatedAction, "", "The action %q can be performed only by a call of %s.", action, tool).
		withHint("Call that tool; judge.validate shows whether the action would be approved.").withPosition(i.position())
}

// findGate returns the public name of the tool whose gate performs an action, "" for none.
func (lib *library) findGate(workflow, action string) string {
	if lib.gates.performedBy == nil || action == "" {
		return ""
	}
	return lib.gates.performedBy(workflow, action)
}

// summarizeCalls returns the calls of an instance that are open or have an unknown outcome.
func summarizeCalls(inst record.Instance) (out []CallSummary) {
	for _, c := range inst.Facts.Calls {
		out = append(out, CallSummary{CallID: c.ID, Tool: c.Gate, Principal: c.Principal, Deadline: c.Deadline, Unknown: !c.IsOpen(), ReviewID: c.Review})
	}
	return out
}

// describeOpenCalls describes the open calls in one sentence; it returns "" if there are none.
func describeOpenCalls(calls []workflow.OpenCall) string {
	var open []string
	for _, c := range calls {
		if c.IsOpen() {
			open = append(open, fmt.Sprintf("%s of %s until %s", c.ID, c.Gate, formatTime(c.Deadline)))
		}
	}
	if len(open) == 0 {
		return ""
	}
	return "Open: " + strings.Join(open, ", ") + "; until then nothing else can move the instance."
}

// emptyData is the data of an action that takes none.
var emptyData = json.RawMessage("{}")
