package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestAdvanceMovesAndRecords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	s := b.start(agent, "simple", `{"n":1}`)
	if s.State != "a" || len(s.NextActions) != 1 || s.NextActions[0] != "go" || s.Revision != 1 {
		t.Fatalf("start: %+v", s)
	}
	r := b.moved(agent, s.ID, "go", `{"x": 1.50, "n": null}`, "b")
	if r.Revision != 2 || r.Complete || r.From != "a" || !strings.Contains(r.Progress, "back, ") && !strings.Contains(r.Progress, "go") {
		t.Fatalf("advance: %+v", r)
	}
	if got := string(b.load(s.ID).Context); got != `{"x":1.50}` {
		t.Errorf("context = %s; null removes a key and numbers keep their literal", got)
	}
	end := b.moved(agent, s.ID, "go", `{}`, "c")
	if !end.Complete || end.Outcome != "success" || len(end.NextActions) != 0 {
		t.Errorf("final: %+v", end)
	}
	events := b.events(s.ID)
	if len(events) != 3 || events[1].Decision == nil || events[1].Decision.DecidedBy != judge.LayerTransition {
		t.Fatalf("events: %+v", events)
	}
	if err := record.Verify(b.store.Events(t.Context(), store.EventQuery{Instance: s.ID})); err != nil {
		t.Errorf("chain: %v", err)
	}
}

func TestIllegalActionIsARecordedRefusal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	r := b.refused(agent, id, "gp", `{}`, "illegal_action")
	if !strings.Contains(r.Decision.Reasoning+strings.Join(r.Decision.Violations, " "), `"go"`) {
		t.Errorf("the refusal does not name the legal action: %+v", r.Decision)
	}
	b.moved(agent, id, "go", "", "b")
	b.moved(agent, id, "go", "", "c")
	b.refused(agent, id, "go", `{}`, "instance_ended")
}

func TestAdvanceRejectsBadRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	big := `{"x":"` + strings.Repeat("y", 2<<20) + `"}`
	cases := []struct {
		name string
		req  engine.AdvanceRequest
		code engine.Code
	}{
		{"no id", engine.AdvanceRequest{Action: "go"}, engine.CodeInvalidArgument},
		{"no action", engine.AdvanceRequest{ID: id}, engine.CodeInvalidArgument},
		{"unknown instance", engine.AdvanceRequest{ID: "wf-nope", Action: "go"}, engine.CodeUnknownInstance},
		{"2 MB", engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(big))}, engine.CodeTooLarge},
		{"duplicate keys", engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{"x":1,"x":2}`))}, engine.CodeInvalidData},
		{"nested duplicate keys", engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{"o":{"x":1,"x":2}}`))}, engine.CodeInvalidData},
		{"number beyond float64", engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{"x":9007199254740993}`))}, engine.CodeInvalidData},
		{"array", engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`[1]`))}, engine.CodeInvalidData},
		{"null", engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`null`))}, engine.CodeInvalidData},
		{"long key", engine.AdvanceRequest{ID: id, Action: "go", Key: strings.Repeat("k", 201)}, engine.CodeTooLarge},
		{"stale revision", engine.AdvanceRequest{ID: id, Action: "go", ExpectedRevision: new(int64(7))}, engine.CodeConflict},
	}
	before := b.load(id)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { //nolint:tparallel // one instance, looked at after all of them
			_, err := b.Advance(t.Context(), agent, c.req)
			e := wantCode(t, err, c.code)
			if e.Hint == "" && c.code != engine.CodeInvalidData {
				t.Errorf("no hint: %v", e)
			}
			if c.code == engine.CodeConflict && (e.Current == nil || e.Current.State != "a") {
				t.Errorf("a conflict shows the current state: %+v", e.Current)
			}
		})
	}
	if after := b.load(id); after.Seq != before.Seq {
		t.Errorf("bad requests were recorded: seq %d -> %d", before.Seq, after.Seq)
	}
}

func TestContextLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, `{"name":"loop","initialState":"a","states":{"a":{"transitions":{"again":"a"}}}}`)
	id := b.start(agent, "loop", "").ID
	chunk := strings.Repeat("x", 60<<10)
	var last error
	for i := range 6 {
		_, last = b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "again", Data: document.ReadTrusted([]byte(`{"k` + string(rune('a'+i)) + `":"` + chunk + `"}`))})
		if last != nil {
			break
		}
	}
	wantCode(t, last, engine.CodeTooLarge)
	if n := len(b.load(id).Context); n > 256<<10 {
		t.Errorf("context grew to %d bytes", n)
	}
}

func TestOnlyOneOfTwoThatExpectARevisionWins(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	var meet sync.WaitGroup
	meet.Add(2)
	b.judge.before = func(context.Context, judge.Case) error { meet.Done(); meet.Wait(); return nil }
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", ExpectedRevision: new(int64(1))})
			errs <- err
		}()
	}
	e1, e2 := <-errs, <-errs
	if (e1 == nil) == (e2 == nil) {
		t.Fatalf("want exactly one winner, got %v and %v", e1, e2)
	}
	lost := wantCode(t, errors.Join(e1, e2), engine.CodeConflict)
	if lost.Current == nil || lost.Current.State != "b" || lost.Current.Revision != 2 {
		t.Errorf("the loser is told the current state: %+v", lost.Current)
	}
}

// A refusal in between does not invalidate a judgement: the event is sealed again and written without
// judging again.
func TestRefusalsBetweenDoNotStopAMove(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	judged := 0
	b.judge.before = func(_ context.Context, c judge.Case) error {
		if c.Action != "go" {
			return nil
		}
		judged++
		b.refused(agent, id, "nope", "", "illegal_action")
		return nil
	}
	r := b.moved(agent, id, "go", "", "b")
	if judged != 1 {
		t.Errorf("judged %d times", judged)
	}
	if r.Seq != 3 || r.Revision != 2 {
		t.Errorf("seq %d revision %d, want 3 and 2", r.Seq, r.Revision)
	}
	if err := record.Verify(b.store.Events(t.Context(), store.EventQuery{Instance: id})); err != nil {
		t.Error(err)
	}
}

func TestUndecidedRecordsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	before := b.load(id)
	b.judge.before = func(context.Context, judge.Case) error { return context.DeadlineExceeded }
	_, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", Key: "k"})
	wantCode(t, err, engine.CodeCancelled)
	b.judge.before = func(context.Context, judge.Case) error { return errors.New("boom") }
	_, err = b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", Key: "k"})
	if e := wantCode(t, err, engine.CodeInternal); strings.Contains(e.Error(), "boom") {
		t.Errorf("an internal error's text reaches the caller: %v", e)
	}
	if after := b.load(id); after.Seq != before.Seq {
		t.Error("an undecided request was recorded")
	}
	b.judge.before = nil
	r, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", Key: "k"})
	if err != nil || r.Replayed {
		t.Errorf("an error must not bind the key: %+v %v", r, err)
	}
}

func TestValidateMovesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	ok, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{"x":1}`))})
	if err != nil || !ok.Approved || ok.State != "a" || ok.Decision.Target != "b" || ok.Decision.Applied {
		t.Fatalf("validate: %+v %v", ok, err)
	}
	no, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "fly"})
	if err != nil || no.Approved || len(no.Decision.Violations) == 0 {
		t.Fatalf("validate: %+v %v", no, err)
	}
	inst := b.load(id)
	if inst.Seq != 3 || inst.Revision != 1 || inst.State != "a" || string(inst.Context) != "{}" {
		t.Errorf("a pre-check grows seq only: %+v", inst)
	}
	h, err := b.History(t.Context(), agent, engine.HistoryRequest{ID: id})
	if err != nil || h.Count != 3 || !h.Decisions[1].Precheck || h.Decisions[0].Precheck {
		t.Errorf("history: %+v %v", h, err)
	}
}

func TestRefusedStartRecordsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, `{"name":"in","initialState":"a","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]},
		"stateValidators":{"a":{"requiredFields":["who"]}},
		"states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`)
	for _, doc := range []string{`{}`, `{"n":"x","who":"me"}`, `{"n":1}`} {
		r, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "in", Context: json.RawMessage(doc), Key: "same"})
		if doc == `{}` && err == nil && (r.Decision.Applied || r.ID != "" || r.Decision.ID != "" || len(r.Decision.Violations) == 0) {
			t.Errorf("start with %s: %+v", doc, r)
		}
		if err != nil {
			t.Errorf("start with %s: %v", doc, err)
		}
	}
	list, err := b.Instances(t.Context(), operator, engine.InstancesRequest{})
	if err != nil || list.Count != 0 {
		t.Fatalf("refused starts left instances: %+v %v", list, err)
	}
	r, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "in", Context: json.RawMessage(`{"n":1,"who":"me"}`), Key: "same"})
	if err != nil || !r.Decision.Applied || r.Replayed {
		t.Errorf("a refused start must not bind its key: %+v %v", r, err)
	}
}
