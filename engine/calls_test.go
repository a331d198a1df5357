package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// releaseFlow deploys an approved version; its careful action asks a person.
const releaseFlow = `{"name":"release","initialState":"draft","states":{
	"draft":{"transitions":{"approve":{"target":"approved","requiredFields":["version"],"freezes":["/version"]}}},
	"approved":{"transitions":{
		"deploy":{"target":"deploying","requiredFields":["version"]},
		"careful":{"target":"deploying","requireAssurance":"human"},
		"cancel":"draft"}},
	"deploying":{"transitions":{"succeed":{"target":"deployed","requiredFields":["url"]},"fail":"broken"}},
	"broken":{"transitions":{"reset":"approved"}},
	"deployed":{"final":true,"outcome":"success"}},
	"agents":{"rollback":true}}`

const deployTool = "prod__deploy"

// deploy returns a call of the tool in the flow above.
func deploy(id, arguments string) engine.CallRequest {
	return engine.CallRequest{
		ID: id, Gate: deployTool, Upstream: "prod", Tool: "deploy", Pin: "sha256:1", Arguments: json.RawMessage(arguments),
		States: []string{"approved"}, Action: "deploy", Data: json.RawMessage(`{"version":"1.2"}`), Success: "succeed", Error: "fail",
		Bound: []engine.Binding{{Argument: "/version", Field: "/version"}}, MaxCalls: 1, Timeout: time.Minute,
	}
}

func newCallBench(t testing.TB, configure ...func(*engine.Config)) *bench {
	return newCallBenchOn(t, memory.New(), configure...)
}

func newCallBenchOn(t testing.TB, db store.Store, configure ...func(*engine.Config)) *bench {
	b := newBenchWith(t, db, nil, func(c *engine.Config) {
		c.ReviewPath = true
		c.Gated = func(_, action string) string {
			if strings.Contains("deploy careful succeed fail", action) {
				return deployTool
			}
			return ""
		}
		for _, also := range configure {
			also(c)
		}
	})
	b.define(operator, releaseFlow)
	return b
}

func (b *bench) approved() string {
	b.t.Helper()
	id := b.start(agent, "release", `{}`).ID
	b.moved(agent, id, "approve", `{"version":"1.2"}`, "approved")
	return id
}

func (b *bench) call(req engine.CallRequest, want engine.CallAnswer) engine.CallResult {
	b.t.Helper()
	r, err := b.BeginCall(b.t.Context(), agent, req)
	if err != nil || r.Answer != want || (want == engine.CallGo) != (r.Answer == engine.CallGo && r.CallID != "" && r.Outcome == "") {
		b.t.Fatalf("the call was answered with %s %s (%s), %v, want %s", r.Answer, r.CallID, r.Decision.Reasoning, err, want)
	}
	return r
}

func (b *bench) settle(id, call string, how engine.CallOutcome, data string) engine.SettleResult {
	b.t.Helper()
	r, err := b.SettleCall(b.t.Context(), agent, engine.SettleRequest{ID: id, CallID: call, Outcome: how, Result: []byte(`{"ok":true}`), Data: json.RawMessage(data)})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// A call is judged, recorded, sent once and settled; nothing else moves the instance while it is open.
func TestACallIsOneUnitWithItsMoves(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	ctx := t.Context()
	id := b.start(agent, "release", `{}`).ID
	early := b.call(deploy(id, `{"version":"1.2"}`), engine.CallRefused)
	if early.Decision.Code != workflow.CodeCallState || early.State != "draft" || !strings.Contains(early.Decision.Reasoning, `"approved"`) {
		t.Errorf("too early: %+v", early.Decision)
	}
	b.moved(agent, id, "approve", `{"version":"1.2"}`, "approved")
	if r := b.call(deploy(id, `{"version":"9"}`), engine.CallRefused); r.Decision.Code != workflow.CodeCallArgument {
		t.Errorf("another version: %+v", r.Decision)
	}
	_, err := b.Advance(ctx, agent, engine.AdvanceRequest{ID: id, Action: "deploy", Data: document.ReadTrusted([]byte(`{"version":"1.2"}`))})
	wantCode(t, err, engine.CodeGatedAction)
	if v, err := b.Validate(ctx, agent, engine.AdvanceRequest{ID: id, Action: "deploy", Data: document.ReadTrusted([]byte(`{"version":"1.2"}`))}); err != nil || !v.Approved {
		t.Errorf("validate: %+v, %v", v, err)
	}

	req := deploy(id, `{"version":"1.2","note":1.50}`)
	req.Key = "k"
	r := b.call(req, engine.CallGo)
	if r.State != "deploying" || len(r.NextActions) != 0 || !strings.Contains(r.Progress, r.CallID) {
		t.Errorf("while it is open: %+v", r.Position)
	}
	if again := b.call(req, engine.CallKnown); again.CallID != r.CallID || !again.Replayed {
		t.Errorf("the same key: %+v", again)
	}
	req.Key, req.MaxArguments = "", 10
	_, err = b.BeginCall(ctx, agent, req)
	wantCode(t, err, engine.CodeTooLarge)
	req.MaxArguments = 0
	req.Arguments = json.RawMessage(`{"note":1.50,"version":"1.2"}`)
	if again := b.call(req, engine.CallKnown); again.CallID != r.CallID {
		t.Errorf("the same arguments: %+v", again)
	}
	if s, err := b.Status(ctx, agent, id); err != nil || len(s.Calls) != 1 || s.Calls[0].CallID != r.CallID || s.Calls[0].Unknown {
		t.Errorf("status: %+v, %v", s.Calls, err)
	}
	_, err = b.Cancel(ctx, agent, engine.CancelRequest{ID: id})
	wantCode(t, err, engine.CodeCallOpen)
	_, err = b.Undo(ctx, operator, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeCallOpen)
	b.define(operator, strings.Replace(releaseFlow, `"cancel":"draft"`, `"cancel":"draft","more":"draft"`, 1))
	if m, err := b.Migrate(ctx, operator, engine.MigrateRequest{Workflow: "release"}); err != nil || m.Refused != 1 {
		t.Errorf("migrate: %+v, %v", m, err)
	}
	_, err = b.SettleCall(ctx, other, engine.SettleRequest{ID: id, CallID: r.CallID, Outcome: engine.CallOK})
	wantCode(t, err, engine.CodeUnknownInstance)
	_, err = b.SettleCall(ctx, agent, engine.SettleRequest{ID: id, CallID: "call-mine", Outcome: engine.CallOK})
	wantCode(t, err, engine.CodeUnknownCall)

	for p, key := range map[engine.Principal]string{agent: "another", other: "k", operator: "k"} { // a key belongs to its principal
		_, err = b.FindCall(ctx, p, id, key)
		wantCode(t, err, engine.CodeUnknownCall)
	}
	if call, err := b.FindCall(ctx, agent, id, "k"); err != nil || call != r.CallID {
		t.Errorf("the call of the key: %s, %v", call, err)
	}
	done := b.settle(id, r.CallID, engine.CallOK, `{"url":"https://x"}`)
	if !done.Moved || done.State != "deployed" || !done.Complete {
		t.Errorf("settled: %+v", done)
	}
	if again := b.settle(id, r.CallID, engine.CallError, `{}`); !again.Replayed || again.Outcome != engine.CallOK || again.State != "deployed" {
		t.Errorf("settled again: %+v", again)
	}
	req.Key = "k"
	req.Arguments = json.RawMessage(`{"version":"1.2","note":1.50}`)
	if again := b.call(req, engine.CallKnown); again.Outcome != engine.CallOK {
		t.Errorf("the key afterwards: %+v", again)
	}
	_, err = b.Undo(ctx, agent, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeForbidden)
	if _, err = b.Undo(ctx, operator, engine.UndoRequest{ID: id}); err != nil {
		t.Error(err)
	}
	_, err = b.Redo(ctx, operator, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeGatedAction)
	if v, err := b.Verify(ctx, operator, audit.VerifyRequest{}); err != nil || !v.Clean() {
		t.Errorf("verify: %+v, %v", v, err)
	}
	if tl, err := b.Timeline(ctx, agent, engine.HistoryRequest{ID: id}); err != nil || tl.Events[len(tl.Events)-3].CallOutcome != engine.CallOK {
		t.Errorf("timeline: %+v, %v", tl, err)
	}
}

// The outcome of a call is recorded even if the move after it is refused, and the result reports both.
func TestACallIsSettledThoughTheMoveIsRefused(t *testing.T) {
	t.Parallel()
	for what, data := range map[string]string{"a field is missing": `{}`, "no document": `{"url":`, "too large": `{"url":"` + strings.Repeat("x", 70<<10) + `"}`} {
		b := newCallBench(t)
		id := b.approved()
		r := b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo)
		done := b.settle(id, r.CallID, engine.CallOK, data)
		if done.Moved || done.State != "deploying" || done.Decision.Outcome != judge.Reject || len(b.load(id).Facts.Calls) != 0 {
			t.Errorf("%s: %+v", what, done)
		}
		if again := b.settle(id, r.CallID, engine.CallOK, `{"url":"x"}`); !again.Replayed {
			t.Errorf("%s: settled twice: %+v", what, again)
		}
	}
}

// Calls without an action are counted, and several may be open.
func TestCallsWithoutAnActionAreCounted(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	id := b.approved()
	read := func(arguments string) engine.CallRequest {
		req := deploy(id, arguments)
		req.Action, req.Success, req.Error, req.Bound, req.MaxCalls = "", "", "", nil, 2
		return req
	}
	one, two := b.call(read(`{"n":1}`), engine.CallGo), b.call(read(`{"n":2}`), engine.CallGo)
	if r := b.call(read(`{"n":3}`), engine.CallRefused); r.Decision.Code != workflow.CodeCallLimit {
		t.Errorf("%+v", r.Decision)
	}
	b.settle(id, one.CallID, engine.CallNotSent, ``)
	b.settle(id, two.CallID, engine.CallError, ``)
	three := b.call(read(`{"n":1}`), engine.CallGo) // the first was never sent
	b.settle(id, three.CallID, engine.CallOK, ``)
	b.call(read(`{"n":4}`), engine.CallRefused)
	if _, err := b.Undo(t.Context(), agent, engine.UndoRequest{ID: id}); engine.CodeOf(err) != engine.CodeForbidden {
		t.Errorf("undo before a call: %v", err)
	}
}

// A check returns the outcome of a call, or the rules against it, and records nothing.
func TestACheckedCallIsNotRecorded(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	id := b.approved()
	check := func(arguments string, want engine.CallAnswer, code string) engine.CallResult {
		t.Helper()
		before, err := b.Status(t.Context(), agent, id)
		if err != nil {
			t.Fatal(err)
		}
		req := deploy(id, arguments)
		req.CheckOnly = true
		r, err := b.BeginCall(t.Context(), agent, req)
		if err != nil || r.Answer != want || r.Decision.Code != code || r.State != before.State {
			t.Errorf("%s: %s %+v, %v", arguments, r.Answer, r.Decision, err)
		}
		if after, err := b.Status(t.Context(), agent, id); err != nil || after.Seq != before.Seq {
			t.Errorf("%s: the instance went from %d to %d: %v", arguments, before.Seq, after.Seq, err)
		}
		return r
	}
	check(`{"version":"1.2"}`, engine.CallGo, "")
	if r := check(`{"version":"1.3"}`, engine.CallRefused, string(workflow.CodeCallArgument)); len(r.Decision.Violations) == 0 {
		t.Errorf("%+v", r.Decision)
	}
	r := b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo)
	if open := check(`{"version":"1.2"}`, engine.CallKnown, ""); open.CallID != r.CallID || open.Outcome != "" {
		t.Errorf("%+v", open)
	}
	b.settle(id, r.CallID, engine.CallUnknown, `{}`)
	if known := check(`{"version":"1.2"}`, engine.CallKnown, ""); known.CallID != r.CallID || known.Outcome != engine.CallUnknown {
		t.Errorf("%+v", known)
	}
	check(`{"version":"1.2","n":1}`, engine.CallRefused, string(workflow.CodeCallState))
}

// After its deadline the outcome of a call is unknown: a person or a late answer settles it.
func TestAnOverdueCallBecomesAReview(t *testing.T) {
	t.Parallel()
	overdue := func(t *testing.T) (*bench, string, engine.CallResult, string) {
		b := newCallBench(t)
		id := b.approved()
		r := b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo)
		b.now = b.now.Add(2 * time.Minute)
		if n, err := b.SettleOverdue(t.Context()); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if n, err := b.SettleOverdue(t.Context()); err != nil || n != 0 {
			t.Fatal(n, err)
		}
		s, err := b.Status(t.Context(), agent, id)
		if err != nil || len(s.Calls) != 1 || !s.Calls[0].Unknown {
			t.Fatalf("%+v, %v", s.Calls, err)
		}
		known := b.call(deploy(id, `{"version":"1.2"}`), engine.CallKnown)
		if known.CallID != r.CallID || known.Outcome != engine.CallUnknown || known.Review == nil || known.Review.CallID != r.CallID {
			t.Fatalf("%+v", known)
		}
		if refused := b.call(deploy(id, `{"version":"1.2","n":1}`), engine.CallRefused); refused.Decision.Code != workflow.CodeCallState {
			t.Errorf("%+v", refused.Decision)
		}
		return b, id, r, s.Calls[0].ReviewID
	}
	resolve := func(b *bench, p engine.Principal, review string, how judge.Outcome) (engine.ResolveResult, error) {
		return b.Resolve(b.t.Context(), p, engine.ResolveRequest{ID: review, Decision: how, Reason: "I looked.", Channel: record.ChannelCLI})
	}
	t.Run("it did not happen", func(t *testing.T) {
		b, id, _, review := overdue(t)
		v, err := b.Review(t.Context(), reviewer, review)
		if err != nil || v.Tool != deployTool || v.Escalation.Kind != record.Called {
			t.Errorf("%+v, %v", v, err)
		}
		_, err = resolve(b, engine.Principal{ID: agent.ID, Role: engine.RoleReviewer}, review, judge.Approve)
		wantCode(t, err, engine.CodeForbidden)
		r, err := resolve(b, reviewer, review, judge.Reject)
		if err != nil || !r.Applied || r.State != "broken" || r.Review.Status != record.ReviewResolved {
			t.Fatalf("%+v, %v", r, err)
		}
		_, err = resolve(b, reviewer, review, judge.Approve)
		wantCode(t, err, engine.CodeReviewClosed)
		b.moved(agent, id, "reset", `{}`, "approved")
		b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo)
	})
	t.Run("it happened", func(t *testing.T) {
		b, id, call, review := overdue(t)
		r, err := resolve(b, reviewer, review, judge.Approve)
		if err != nil || r.Applied || r.State != "deploying" || r.Decision.Code != "required_field" {
			t.Fatalf("%+v, %v", r, err) // the url is unknown
		}
		if late := b.settle(id, call.CallID, engine.CallOK, `{"url":"x"}`); !late.Replayed || late.State != "deploying" {
			t.Errorf("%+v", late)
		}
	})
	t.Run("a late answer", func(t *testing.T) {
		b, id, call, review := overdue(t)
		if late := b.settle(id, call.CallID, engine.CallOK, `{"url":"x"}`); late.Replayed || late.State != "deployed" {
			t.Errorf("%+v", late)
		}
		_, err := resolve(b, reviewer, review, judge.Reject)
		wantCode(t, err, engine.CodeReviewClosed)
		if row, err := store.FindReview(t.Context(), b.store, review); err != nil || row.Status != record.ReviewStale {
			t.Errorf("%+v, %v", row, err)
		}
		if v, err := b.Verify(t.Context(), operator, audit.VerifyRequest{}); err != nil || !v.Clean() {
			t.Errorf("verify: %+v, %v", v, err)
		}
	})
	t.Run("sent again", func(t *testing.T) {
		b, id, call, review := overdue(t)
		req := deploy(id, `{"version":"1.2"}`)
		req.Repeatable = true
		if again := b.call(req, engine.CallGo); again.CallID != call.CallID {
			t.Errorf("%+v", again)
		}
		if row, err := store.FindReview(t.Context(), b.store, review); err != nil || row.Status != record.ReviewStale {
			t.Errorf("%+v, %v", row, err)
		}
		b.settle(id, call.CallID, engine.CallOK, `{"url":"x"}`)
	})
}

// A person's approval grants exactly one call, by the same caller, in the same state, for a limited time.
func TestAnApprovalGrantsOneCall(t *testing.T) {
	t.Parallel()
	careful := func(id, arguments string) engine.CallRequest {
		req := deploy(id, arguments)
		req.Action, req.MaxCalls = "careful", 0
		return req
	}
	granted := func(t *testing.T) (*bench, string) {
		b := newCallBench(t, func(c *engine.Config) { c.GrantFor = time.Hour })
		id := b.approved()
		r := b.call(careful(id, `{"version":"1.2"}`), engine.CallParked)
		if r.Review == nil || r.State != "approved" || r.Review.Tool != deployTool {
			t.Fatalf("%+v", r)
		}
		if again := b.call(careful(id, `{"version":"1.2"}`), engine.CallParked); again.Review.ID != r.Review.ID {
			t.Errorf("the same waits twice: %+v", again)
		}
		res, err := b.Resolve(t.Context(), reviewer, engine.ResolveRequest{ID: r.Review.ID, Decision: judge.Approve, Reason: "Go.", Channel: record.ChannelCLI})
		if err != nil || res.Applied || res.State != "approved" || !strings.Contains(res.Message, "once") {
			t.Fatalf("%+v, %v", res, err)
		}
		return b, id
	}
	t.Run("used", func(t *testing.T) {
		b, id := granted(t)
		r := b.call(careful(id, `{"version":"1.2"}`), engine.CallGo)
		if r.State != "deploying" || r.Decision.DecidedBy != judge.ByReviewer {
			t.Errorf("%+v", r.Decision)
		}
		b.settle(id, r.CallID, engine.CallError, `{}`)
		b.moved(agent, id, "reset", `{}`, "approved")
		b.call(careful(id, `{"version":"1.2"}`), engine.CallParked) // the grant is used up
	})
	t.Run("other arguments", func(t *testing.T) {
		b, id := granted(t)
		b.call(careful(id, `{"version":"1.2","force":true}`), engine.CallParked)
	})
	t.Run("expired", func(t *testing.T) {
		b, id := granted(t)
		b.now = b.now.Add(2 * time.Hour)
		b.call(careful(id, `{"version":"1.2"}`), engine.CallParked)
	})
	t.Run("moved on", func(t *testing.T) {
		b, id := granted(t)
		b.moved(agent, id, "cancel", `{}`, "draft")
		b.moved(agent, id, "approve", `{"version":"1.2"}`, "approved")
		b.call(careful(id, `{"version":"1.2"}`), engine.CallParked)
	})
	t.Run("the rules say no", func(t *testing.T) {
		b, id := granted(t)
		req := careful(id, `{"version":"1.2"}`)
		req.Data = json.RawMessage(`{"version":"other"}`) // frozen
		if r := b.call(req, engine.CallRefused); r.Decision.Code != workflow.CodeFrozenField {
			t.Errorf("%+v", r.Decision)
		}
	})
}

// Of many concurrent callers, exactly one gets CallGo.
func TestOneOfManyCallsGoes(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	id := b.approved()
	answers := make(chan engine.CallAnswer)
	for range 8 {
		go func() {
			r, err := b.BeginCall(context.Background(), agent, deploy(id, `{"version":"1.2"}`))
			if err != nil {
				r.Answer = engine.CallAnswer(err.Error())
			}
			answers <- r.Answer
		}()
	}
	got := map[engine.CallAnswer]int{}
	for range 8 {
		got[<-answers]++
	}
	if got[engine.CallGo] != 1 || got[engine.CallKnown] != 7 {
		t.Errorf("answers: %v", got)
	}
}

// A move that was judged before a call began is not made while the call is open.
func TestACallOvertakesAMove(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	id := b.approved()
	req := deploy(id, `{"n":1}`)
	req.Action, req.Bound = "", nil
	b.judge.before = func(_ context.Context, c judge.Case) error {
		b.judge.before = nil
		_, err := b.BeginCall(context.Background(), agent, req)
		return err
	}
	_, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "cancel"})
	if engine.CodeOf(err) != engine.CodeCallOpen || b.load(id).State != "approved" || errors.Is(err, store.ErrConflict) {
		t.Errorf("%v, in %q", err, b.load(id).State)
	}
}

// A subject has one instance until that instance ends with success or an operator releases the subject:
// cancelling and starting again gives no second allowance.
func TestASubjectHasOneInstance(t *testing.T) {
	t.Parallel()
	b := newCallBench(t)
	ctx := t.Context()
	start := func() (engine.StartResult, error) {
		return b.Start(ctx, agent, engine.StartRequest{Type: "release", Subject: "7"})
	}
	first, err := start()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = start(); engine.CodeOf(err) != engine.CodeSubjectTaken {
		t.Errorf("a second one: %v", err)
	}
	if pos, err := b.FindSubject(ctx, agent, "release", "7"); err != nil || pos.ID != first.ID {
		t.Errorf("%+v, %v", pos, err)
	}
	_, err = b.FindSubject(ctx, other, "release", "7")
	wantCode(t, err, engine.CodeForbidden)
	_, err = b.FindSubject(ctx, agent, "release", "8")
	wantCode(t, err, engine.CodeUnknownInstance)
	if _, err = b.Cancel(ctx, agent, engine.CancelRequest{ID: first.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err = start(); engine.CodeOf(err) != engine.CodeSubjectTaken {
		t.Errorf("after a cancel: %v", err)
	}
	_, err = b.ReleaseSubject(ctx, agent, engine.ReleaseRequest{ID: first.ID})
	wantCode(t, err, engine.CodeForbidden)
	if _, err = b.ReleaseSubject(ctx, operator, engine.ReleaseRequest{ID: first.ID, Reason: "Looked at."}); err != nil {
		t.Fatal(err)
	}
	second, err := start()
	if err != nil {
		t.Fatal(err)
	}
	b.moved(agent, second.ID, "approve", `{"version":"1.2"}`, "approved")
	r := b.call(deploy(second.ID, `{"version":"1.2"}`), engine.CallGo)
	if done := b.settle(second.ID, r.CallID, engine.CallOK, `{"url":"x"}`); !done.Complete {
		t.Fatalf("%+v", done)
	}
	if _, err = start(); err != nil {
		t.Errorf("after success: %v", err)
	}
	if v, err := b.Verify(ctx, operator, audit.VerifyRequest{}); err != nil || !v.Clean() {
		t.Errorf("verify: %+v, %v", v, err)
	}
}
