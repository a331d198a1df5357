package engine_test

import (
	"context"
	"encoding/json"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// note returns a call that stands for no action.
func note(id, arguments string) engine.CallRequest {
	return engine.CallRequest{
		ID: id, Gate: "prod__note", Upstream: "prod", Tool: "note", Arguments: json.RawMessage(arguments),
		States: []string{"approved"}, MaxCalls: 1, Timeout: time.Minute,
	}
}

// A call that turned out not to have been made restores its allowance once, whichever passage the instance
// is in by then.
func TestACallThatWasNotMadeIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	ctx := t.Context()
	id := b.approved()
	first := b.call(note(id, `{}`), engine.CallGo)
	b.settle(id, first.CallID, engine.CallUnknown, `{}`)
	b.moved(agent, id, "cancel", `{}`, "draft")
	b.moved(agent, id, "approve", `{"version":"1.2"}`, "approved")
	for range 2 {
		if _, err := b.Undo(ctx, operator, engine.UndoRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	review := b.load(id).Facts.Calls[0].Review
	if _, err := b.Resolve(ctx, reviewer, engine.ResolveRequest{ID: review, Decision: judge.Reject, Reason: "It did not.", Channel: record.ChannelCLI}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := b.Redo(ctx, operator, engine.UndoRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	b.settle(id, b.call(note(id, `{}`), engine.CallGo).CallID, engine.CallOK, `{}`)
	if r := b.call(note(id, `{}`), engine.CallRefused); r.Decision.Code != workflow.CodeCallLimit {
		t.Errorf("%+v", r.Decision)
	}
}

// Moves by a gate's own calls do not renew the gate's allowance.
func TestGateDoesNotRenewItsAllowance(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, `{"name":"loop","initialState":"open","states":{
		"open":{"transitions":{"send":"sending","pause":"paused"}},
		"sending":{"transitions":{"sent":"open"}},
		"paused":{"transitions":{"resume":"open"}},
		"done":{"final":true}}}`)
	id := b.start(agent, "loop", `{}`).ID
	req := engine.CallRequest{
		ID: id, Gate: "mail__send", Upstream: "mail", Tool: "send", Arguments: json.RawMessage(`{}`), States: []string{"open"},
		Action: "send", Success: "sent", MaxCalls: 2, Timeout: time.Minute,
	}
	for range 2 {
		b.settle(id, b.call(req, engine.CallGo).CallID, engine.CallOK, `{}`)
	}
	if r := b.call(req, engine.CallRefused); r.Decision.Code != workflow.CodeCallLimit {
		t.Errorf("%+v", r.Decision)
	}
	b.moved(agent, id, "pause", `{}`, "paused")
	b.moved(agent, id, "resume", `{}`, "open")
	b.call(req, engine.CallGo)
}

// The same arguments call nothing while the call is open, whichever principal sends them.
func TestAnotherPrincipalDoesNotRepeatAnOpenCall(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	id := b.approved()
	req := note(id, `{"n":1}`)
	req.MaxCalls = 0
	open := b.call(req, engine.CallGo)
	r, err := b.BeginCall(t.Context(), operator, req)
	if err != nil || r.Answer != engine.CallKnown || r.CallID != open.CallID {
		t.Errorf("%s %s, %v", r.Answer, r.CallID, err)
	}
	_, err = b.SettleCall(t.Context(), engine.Principal{ID: "other", Role: engine.RoleAgent}, engine.SettleRequest{ID: id, CallID: open.CallID, Outcome: engine.CallOK})
	if err == nil {
		t.Error("another principal settled the call")
	}
	_, err = b.SettleCall(t.Context(), reviewer, engine.SettleRequest{ID: id, CallID: open.CallID, Outcome: engine.CallOK})
	if err == nil {
		t.Error("a reviewer settled the call")
	}
}

// If a late answer and a person's decision arrive at the same time, exactly one of them counts, on any
// process.
func TestALateAnswerAndAPersonAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		b := newCallBench(t)
		other := newBenchWith(t, b.store, nil, func(c *engine.Config) { c.ReviewPath = true })
		id := b.approved()
		r := b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo)
		b.settle(id, r.CallID, engine.CallUnknown, `{}`)
		review := b.load(id).Facts.Calls[0].Review
		var wg sync.WaitGroup
		var late engine.SettleResult
		var lateErr, personErr error
		wg.Go(func() {
			late, lateErr = other.SettleCall(context.Background(), agent, engine.SettleRequest{ID: id, CallID: r.CallID, Outcome: engine.CallOK, Data: json.RawMessage(`{"url":"x"}`)})
		})
		wg.Go(func() {
			_, personErr = b.Resolve(context.Background(), reviewer, engine.ResolveRequest{ID: review, Decision: judge.Reject, Reason: "No.", Channel: record.ChannelCLI})
		})
		wg.Wait()
		inst := b.load(id)
		switch {
		case lateErr != nil:
			t.Fatal(lateErr)
		case late.Replayed && (personErr != nil || inst.State != "broken" || late.Outcome != engine.CallNotSent):
			t.Fatalf("%+v, %v, in %q", late, personErr, inst.State)
		case !late.Replayed && (engine.CodeOf(personErr) != engine.CodeReviewClosed || inst.State != "deployed"):
			t.Fatalf("%+v, %v, in %q", late, personErr, inst.State)
		}
		if v, err := b.Verify(t.Context(), operator, audit.VerifyRequest{}); err != nil || !v.Clean() {
			t.Fatalf("%+v, %v", v.Problems, err)
		}
	}
}

// Concurrent calls with different arguments from two processes stay within the limit.
func TestTwoProcessesKeepTheLimit(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	other := newBenchWith(t, b.store, nil, func(c *engine.Config) { c.ReviewPath = true })
	id := b.approved()
	var wg sync.WaitGroup
	gone := make(chan string, 8)
	for i := range 8 {
		on := []*engine.Engine{b.Engine, other.Engine}[i%2]
		wg.Go(func() {
			r, err := on.BeginCall(context.Background(), agent, note(id, `{"n":`+string(rune('0'+i))+`}`))
			if err == nil && r.Answer == engine.CallGo {
				gone <- r.CallID
			}
		})
	}
	wg.Wait()
	if len(gone) != 1 {
		t.Errorf("%d calls went", len(gone))
	}
}

// withoutCalls is a store that lost its called events in a repair.
type withoutCalls struct{ store.Store }

func (s withoutCalls) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for ev, err := range s.Store.Events(ctx, q) {
			if (err != nil || ev.Kind != record.Called) && !yield(ev, err) {
				return
			}
		}
	}
}

// A person can settle a call even if a repair has lost its beginning.
func TestACallWhoseBeginningIsLost(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	id := b.approved()
	b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo)
	repaired := newBenchWith(t, withoutCalls{b.store}, nil, func(c *engine.Config) {
		c.ReviewPath, c.Now = true, func() time.Time { return b.now.Add(time.Hour) }
	})
	if n, err := repaired.SettleOverdue(t.Context()); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	review := b.load(id).Facts.Calls[0].Review
	if row, err := store.FindReview(t.Context(), b.store, review); err != nil || row.Principal != agent.ID {
		t.Errorf("%+v, %v", row, err)
	}
	r, err := repaired.Resolve(t.Context(), reviewer, engine.ResolveRequest{ID: review, Decision: judge.Approve, Reason: "It did.", Channel: record.ChannelCLI})
	if err != nil || r.Applied || len(b.load(id).Facts.Calls) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A move that no gate performs can be redone, even if a tool was called after it.
func TestRedoOfAMoveBeforeACall(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	id := b.approved()
	b.settle(id, b.call(note(id, `{}`), engine.CallGo).CallID, engine.CallOK, `{}`)
	_, err := b.Undo(t.Context(), agent, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeForbidden)
	if _, err := b.Undo(t.Context(), operator, engine.UndoRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	_, err = b.Redo(t.Context(), agent, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeForbidden)
	if r, err := b.Redo(t.Context(), operator, engine.UndoRequest{ID: id}); err != nil || r.State != "approved" {
		t.Fatalf("%+v, %v", r, err)
	}
	if r := b.call(note(id, `{}`), engine.CallRefused); r.Decision.Code != workflow.CodeCallLimit {
		t.Errorf("%+v", r.Decision)
	}
}
