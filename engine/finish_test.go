package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// fixFlow is a path with a detour, a step that another principal makes, and two ends.
const fixFlow = `{"name":"fix","initialState":"coding","states":{
	"coding":{"transitions":{"note":"coding","detour":"asking","test":{"target":"tested","requiredFields":["log"]}}},
	"asking":{"transitions":{"answer":"coding"}},
	"tested":{"transitions":{"back":"coding","merge":{"target":"done","requireAssurance":"human"},"sign":{"target":"signed","roles":["reviewer"]},"drop":"dropped"}},
	"signed":{"transitions":{"archive":{"target":"done","roles":["operator"]},"veto":{"target":"coding","notBy":"test","roles":["agent"]}}},
	"done":{"final":true,"outcome":"success"},
	"dropped":{"final":true,"outcome":"failure"}},
	"agents":{"rollback":true}}`

func newFinishBench(t testing.TB, configure ...func(*engine.Config)) *bench {
	b := newCallBench(t, configure...)
	b.define(operator, fixFlow)
	return b
}

// finish asks to end in "done"; two refusals are allowed.
func (b *bench) finish(p engine.Principal, id string) engine.FinishResult {
	b.t.Helper()
	r, err := b.Finish(b.t.Context(), p, engine.FinishRequest{ID: id, States: []string{"done"}, Attempts: 2})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) mayNotEnd(id string, refused int, said ...string) engine.FinishResult {
	b.t.Helper()
	r := b.finish(agent, id)
	if r.MayEnd || r.Refused != refused || r.Review != nil {
		b.t.Fatalf("it may end: %+v, want refusal %d", r, refused)
	}
	for _, s := range said {
		if !strings.Contains(r.Reason+" "+r.Hint, s) {
			b.t.Errorf("the reason %q does not say %q", r.Reason+" "+r.Hint, s)
		}
	}
	return r
}

func (b *bench) mayEnd(id, said string) engine.FinishResult {
	b.t.Helper()
	r := b.finish(agent, id)
	if !r.MayEnd || !strings.Contains(r.Reason, said) {
		b.t.Fatalf("it may not end: %+v, want %q", r, said)
	}
	return r
}

// A stop is refused with the next step, as often as is allowed. Then it is allowed and a review is opened,
// which blocks no move.
func TestStopIsRefusedUntilLimit(t *testing.T) {
	t.Parallel()
	b := newFinishBench(t)
	id := b.start(agent, "fix", `{}`).ID
	r := b.mayNotEnd(id, 1, `"coding"`, `may end in "done"`, `Next: perform "test" of `+id+` with workflow.advance; its data needs log.`)
	if r.State != "coding" || r.Revision != 1 || r.Next != "test" {
		t.Errorf("it moved: %+v", r.Position)
	}
	b.moved(agent, id, "test", `{"log":"ok"}`, "tested")
	b.mayNotEnd(id, 1, `"merge"`) // a move resets the count
	b.mayNotEnd(id, 2)
	early := b.mayEnd(id, "A person is notified")
	if early.Review == nil || !early.Review.EndedEarly || early.Review.Status != record.ReviewOpen || early.Review.RequestedBy != agent.ID || early.Refused != 2 {
		t.Fatalf("the review: %+v", early.Review)
	}
	if again := b.mayEnd(id, "A person is notified"); again.Review == nil || again.Review.ID != early.Review.ID {
		t.Errorf("asked again: %+v", again)
	}
	if n := len(b.events(id)); n != 6 {
		t.Errorf("%d events, want start, refusal, move, two refusals and the early end", n)
	}
	b.moved(agent, id, "back", `{}`, "coding")
	if row := b.review(early.Review.ID); row.Status != record.ReviewStale {
		t.Errorf("after a move the review is %+v", row)
	}
	b.mayNotEnd(id, 1)
	b.verify(id)
}

// Each client session is refused as often as is allowed, whatever other sessions did before or do at the
// same time.
func TestStopsAreCountedInEachSession(t *testing.T) {
	t.Parallel()
	b := newFinishBench(t)
	id := b.start(agent, "fix", `{}`).ID
	var review string
	for i, step := range []struct {
		session string
		refused int
		mayEnd  bool
	}{
		{"one", 1, false},
		{"two", 1, false},
		{"one", 2, false},
		{"one", 2, true},
		{"one", 2, true},
		{"two", 2, false},
		{"three", 1, false},
		{"two", 2, true},
		{"three", 2, false},
		{"three", 2, true},
		{"one", 2, true},
	} {
		r, err := b.Finish(t.Context(), agent, engine.FinishRequest{ID: id, States: []string{"done"}, Attempts: 2, Session: step.session})
		if err != nil || r.MayEnd != step.mayEnd || r.Refused != step.refused {
			t.Fatalf("stop %d, of session %s: %+v, %v", i+1, step.session, r, err)
		}
		if step.mayEnd {
			if review == "" {
				review = r.Review.ID
			}
			if r.Review == nil || r.Review.ID != review {
				t.Errorf("stop %d: the review %+v, want the first one, %s", i+1, r.Review, review)
			}
		}
	}
	b.moved(agent, id, "test", `{"log":"ok"}`, "tested")
	if stops := b.load(id).Facts.Stops; stops.Refused != 0 || len(stops.Sessions) != 0 {
		t.Errorf("after a move: %+v", stops)
	}
	b.verify(id)
}

// Beyond a limit, sessions share one count, so that none is refused forever.
func TestStopsOfManySessionsAreBounded(t *testing.T) {
	t.Parallel()
	var s workflow.Stops
	for i := range 40 {
		s = s.Refuse(fmt.Sprint("session ", i))
	}
	if len(s.Sessions) > 33 || s.CountIn("session 0") != 1 || s.CountIn("another") != 8 || s.CountIn("") != 40 {
		t.Errorf("%+v", s)
	}
	more := s.Refuse("session 0")
	if s.CountIn("session 0") != 1 || more.CountIn("session 0") != 2 {
		t.Errorf("before %+v, after %+v", s, more)
	}
}

// An agent that can do nothing may end, and gets the reason.
func TestBlockedAgentMayStop(t *testing.T) {
	t.Parallel()
	b := newFinishBench(t)
	tested := func() string {
		id := b.start(agent, "fix", `{}`).ID
		b.moved(agent, id, "test", `{"log":"ok"}`, "tested")
		return id
	}
	waits := tested()
	review := b.parked(agent, waits, "merge", `{}`)
	if r := b.mayEnd(waits, "waits for a person"); r.Review == nil || r.Review.ID != review.ID {
		t.Errorf("with a review of its own: %+v", r)
	}
	if _, err := b.resolve(reviewer, review.ID, judge.Reject); err != nil {
		t.Fatal(err)
	}
	b.mayNotEnd(waits, 1, `"merge"`)

	others := tested()
	b.moved(reviewer, others, "sign", `{}`, "signed")
	b.mayEnd(others, "only others can act") // the agent tested it, and so may not veto

	dropped := tested()
	b.moved(agent, dropped, "drop", `{}`, "dropped")
	b.mayEnd(dropped, `ended in "dropped"`)

	cancelled := tested()
	if _, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: cancelled}); err != nil {
		t.Fatal(err)
	}
	b.mayEnd(cancelled, "was cancelled")

	done := tested()
	review = b.parked(agent, done, "merge", `{}`)
	if _, err := b.resolve(reviewer, review.ID, judge.Approve); err != nil {
		t.Fatal(err)
	}
	if r := b.mayEnd(done, `is in "done"`); r.Review != nil || r.Refused != 0 {
		t.Errorf("done: %+v", r)
	}
}

// An open call keeps the agent from ending; a call with an unknown outcome does not.
func TestStopIsRefusedWhileCallIsOpen(t *testing.T) {
	t.Parallel()
	b := newFinishBench(t)
	id := b.approved()
	c := b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo)
	finish := func() engine.FinishResult {
		t.Helper()
		r, err := b.Finish(t.Context(), agent, engine.FinishRequest{ID: id, States: []string{"deploying", "deployed"}, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := finish(); r.MayEnd || r.Next != "" || !strings.Contains(r.Hint, c.CallID) || !strings.Contains(r.Hint, "wait for its answer") {
		t.Errorf("while the call is open: %+v", r)
	}
	early := finish()
	if !early.MayEnd || early.Review == nil || !early.Review.EndedEarly {
		t.Errorf("the second stop: %+v", early)
	}
	b.settle(id, c.CallID, engine.CallOK, `{"url":"https://example.org"}`)
	if r := finish(); !r.MayEnd || r.State != "deployed" || b.review(early.Review.ID).Status != record.ReviewStale {
		t.Errorf("after the call: %+v", r)
	}

	id = b.approved()
	req := deploy(id, `{"version":"1.2"}`)
	c = b.call(req, engine.CallGo)
	b.settle(id, c.CallID, engine.CallUnknown, "")
	r, err := b.Finish(t.Context(), agent, engine.FinishRequest{ID: id, States: []string{"deployed"}, Attempts: 1})
	if err != nil || !r.MayEnd || r.Review == nil || r.Review.CallID != c.CallID {
		t.Errorf("while nobody knows what became of a call: %+v, %v", r, err)
	}
}

// An agent that returns after an early end gets the person's decision on it.
func TestPersonDecidesEarlyStop(t *testing.T) {
	t.Parallel()
	b := newFinishBench(t)
	early := func() (id, review string) {
		id = b.start(agent, "fix", `{}`).ID
		b.mayNotEnd(id, 1)
		b.mayNotEnd(id, 2)
		return id, b.mayEnd(id, "").Review.ID
	}
	id, review := early()
	_, err := b.resolve(agent, review, judge.Approve)
	wantCode(t, err, engine.CodeForbidden)
	if r, err := b.resolve(reviewer, review, judge.Approve); err != nil || r.Applied || r.State != "coding" || r.Decision.Outcome != judge.Approve {
		t.Errorf("accepted: %+v, %v", r, err)
	}
	b.mayEnd(id, "A person accepted")
	b.moved(agent, id, "note", `{"n":1}`, "coding")
	b.mayNotEnd(id, 1)

	id, review = early()
	r, err := b.Resolve(t.Context(), reviewer, engine.ResolveRequest{ID: review, Decision: judge.Reject, Reason: "Run the tests."})
	if err != nil || r.Applied || r.Decision.Outcome != judge.Reject {
		t.Errorf("sent back: %+v, %v", r, err)
	}
	b.mayNotEnd(id, 1, `A person sent the agent back: "Run the tests."`, `"test"`)
	b.mayNotEnd(id, 2)
	if again := b.mayEnd(id, "A person is notified"); again.Review.ID == review {
		t.Error("a review that was resolved is shown as open")
	}
	status, err := b.Status(t.Context(), agent, id)
	if err != nil || len(status.Reviews) != 1 || !status.Reviews[0].EndedEarly || !strings.Contains(status.Reviews[0].Next, "ended early") {
		t.Errorf("the status: %+v, %v", status.Reviews, err)
	}
	b.moved(agent, id, "detour", `{}`, "asking")
	b.moved(agent, id, "answer", `{}`, "coding")
	if status, err := b.Status(t.Context(), agent, id); err != nil || len(status.Reviews) != 0 {
		t.Errorf("a moved instance still shows %+v, %v", status.Reviews, err)
	}
	if r := b.mayNotEnd(id, 1); strings.Contains(r.Reason, "sent the agent back") {
		t.Errorf("words about a revision that is past: %q", r.Reason)
	}
	b.verify(id)
}

// Other principals may not ask; a repeated key gets its answer again and counts once.
func TestStopOfOwnerIsCountedOnce(t *testing.T) {
	t.Parallel()
	b := newFinishBench(t)
	id := b.start(agent, "fix", `{}`).ID
	ask := func(p engine.Principal, req engine.FinishRequest) (engine.FinishResult, error) {
		req.ID, req.States = id, []string{"done"}
		return b.Finish(t.Context(), p, req)
	}
	_, err := ask(other, engine.FinishRequest{Attempts: 1})
	wantCode(t, err, engine.CodeUnknownInstance)
	_, err = ask(reviewer, engine.FinishRequest{Attempts: 1})
	wantCode(t, err, engine.CodeForbidden)
	_, err = ask(auditor, engine.FinishRequest{Attempts: 1})
	wantCode(t, err, engine.CodeForbidden)
	_, err = ask(agent, engine.FinishRequest{})
	wantCode(t, err, engine.CodeInternal)
	for range 3 {
		r, err := ask(agent, engine.FinishRequest{Attempts: 1, Key: "k"})
		if err != nil || r.MayEnd || r.State != "coding" || !strings.Contains(r.Reason+r.Hint, `"test"`) {
			t.Errorf("with a key: %+v, %v", r, err)
		}
	}
	_, err = ask(agent, engine.FinishRequest{Attempts: 2, Key: "k"})
	wantCode(t, err, engine.CodeKeyReused)
	for range 2 {
		if r, err := ask(operator, engine.FinishRequest{Attempts: 1, Key: "l"}); err != nil || !r.MayEnd || r.Review == nil {
			t.Errorf("let through: %+v, %v", r, err)
		}
	}
	if stops := b.load(id).Facts.Stops; stops.Refused != 1 || stops.Accepted || stops.Sessions != nil {
		t.Errorf("counted %+v", stops)
	}
}

// History and timeline describe stops.
func TestStopsAppearInHistoryAndTimeline(t *testing.T) {
	t.Parallel()
	b := newFinishBench(t)
	id := b.start(agent, "fix", `{}`).ID
	b.mayNotEnd(id, 1)
	b.mayNotEnd(id, 2)
	review := b.mayEnd(id, "").Review.ID
	if _, err := b.resolve(reviewer, review, judge.Reject); err != nil {
		t.Fatal(err)
	}
	timeline, err := b.Timeline(t.Context(), auditor, engine.HistoryRequest{ID: id})
	if err != nil || len(timeline.Events) != 5 {
		t.Fatalf("the timeline: %+v, %v", timeline, err)
	}
	for i, e := range timeline.Events {
		if e.Stop != (i >= 1 && i <= 3) || e.Stop && !strings.Contains(e.Reason, `may end in "done"`) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	history, err := engine.ReadWholeHistory(t.Context(), b.Engine, auditor, id)
	if err != nil || len(history) != 5 || history[1].Code != workflow.CodeNotFinished || history[3].ReviewID != review {
		raw, _ := json.Marshal(history)
		t.Errorf("the history: %s, %v", raw, err)
	}
	shown, err := b.Review(t.Context(), reviewer, review)
	if err != nil || !shown.EndedEarly || shown.Escalation.Code != workflow.CodeNotFinished || !strings.Contains(shown.Escalation.Reasoning, "after 2 refused stops") {
		t.Errorf("the review: %+v, %v", shown, err)
	}
}
