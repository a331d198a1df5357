package engine_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/validators/document"
)

// A retry with the same key gets an answer and is not performed again, whatever happened since.
func TestReplay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	ctx := t.Context()

	start := engine.StartRequest{Type: "simple", Context: json.RawMessage(`{"a":1,"b":2}`), Key: "s"}
	s1, err1 := b.Start(ctx, agent, start)
	start.Context = json.RawMessage(`{"b":2, "a":1}`) // the same request
	s2, err2 := b.Start(ctx, agent, start)
	sameButReplayed(t, "start", s1, s2, err1, err2, &s2.Replayed)
	id := s1.ID

	adv := engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{"x":1}`)), Key: "k"}
	a1, err1 := b.Advance(ctx, agent, adv)
	b.moved(agent, id, "back", "", "a") // the answer shows the position at that time, not the present one
	a2, err2 := b.Advance(ctx, agent, adv)
	sameButReplayed(t, "advance", a1, a2, err1, err2, &a2.Replayed)

	bad := engine.AdvanceRequest{ID: id, Action: "nope", Key: "r"}
	r1, err1 := b.Advance(ctx, agent, bad)
	r2, err2 := b.Advance(ctx, agent, bad)
	sameButReplayed(t, "refusal", r1, r2, err1, err2, &r2.Replayed)

	cp := engine.CheckpointRequest{ID: id, Description: "here", Key: "k"} // another operation: another scope
	c1, err1 := b.Checkpoint(ctx, agent, cp)
	c2, err2 := b.Checkpoint(ctx, agent, cp)
	sameButReplayed(t, "checkpoint", c1, c2, err1, err2, &c2.Replayed)

	b.moved(agent, id, "go", `{"y":2}`, "b")
	back := engine.RollbackRequest{ID: id, CheckpointID: c1.CheckpointID, Key: "k"}
	b1, err1 := b.Rollback(ctx, agent, back)
	b.moved(agent, id, "go", `{"z":3}`, "b")
	b2, err2 := b.Rollback(ctx, agent, back)
	sameButReplayed(t, "rollback", b1, b2, err1, err2, &b2.Replayed)

	end := engine.CancelRequest{ID: id, Reason: "done", Key: "k"}
	e1, err1 := b.Cancel(ctx, agent, end)
	e2, err2 := b.Cancel(ctx, agent, end)
	sameButReplayed(t, "cancel", e1, e2, err1, err2, &e2.Replayed)

	if n := len(b.events(id)); n != 9 {
		t.Errorf("%d events, want 9: replays were recorded", n)
	}

	adv.Action = "back"
	_, err := b.Advance(ctx, agent, adv)
	wantCode(t, err, engine.CodeKeyReused)
	adv.Action, adv.Data = "go", document.ReadTrusted([]byte(`{"x":2}`))
	_, err = b.Advance(ctx, agent, adv)
	wantCode(t, err, engine.CodeKeyReused)
}

// sameButReplayed compares an answer with its replay.
func sameButReplayed[T any](t *testing.T, what string, first, second T, err1, err2 error, replayed *bool) {
	t.Helper()
	if err1 != nil || err2 != nil {
		t.Fatalf("%s: %v, %v", what, err1, err2)
	}
	a, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	if !*replayed {
		t.Errorf("%s: the second answer is not marked as replayed", what)
	}
	b, err := json.Marshal(second)
	if err != nil {
		t.Fatal(err)
	}
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		t.Fatal("answers are not objects")
	}
	delete(y, "replayed")
	if diff := cmp.Diff(x, y); diff != "" {
		t.Errorf("%s: the replay differs (-first +replay):\n%s", what, diff)
	}
}

// The same key from many concurrent callers gives one event and one answer. Two engines on one store
// represent two processes.
func TestConcurrentDuplicates(t *testing.T) {
	t.Parallel()
	store := memory.New()
	b1, b2 := newBenchOn(t, store), newBenchOn(t, store)
	b1.define(agent, simple)
	id := b1.start(agent, "simple", "").ID
	const n = 16
	var wg sync.WaitGroup
	answers := make([]engine.AdvanceResult, n)
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			e := b1.Engine
			if i%2 == 1 {
				e = b2.Engine
			}
			answers[i], errs[i] = e.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", Key: "same"})
		})
	}
	wg.Wait()
	fresh := 0
	for i := range n {
		if errs[i] != nil {
			t.Fatalf("caller %d: %v", i, errs[i])
		}
		if answers[i].Decision.ID != answers[0].Decision.ID || answers[i].State != "b" {
			t.Errorf("caller %d got another answer: %+v", i, answers[i])
		}
		if !answers[i].Replayed {
			fresh++
		}
	}
	if fresh != 1 || len(b1.events(id)) != 2 {
		t.Errorf("%d fresh answers, %d events", fresh, len(b1.events(id)))
	}
}

func TestKeysAreScopedToThePrincipal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, simple)
	a, err1 := b.Start(t.Context(), agent, engine.StartRequest{Type: "simple", Key: "k"})
	o, err2 := b.Start(t.Context(), other, engine.StartRequest{Type: "simple", Key: "k"})
	if err1 != nil || err2 != nil || a.ID == o.ID || o.Replayed {
		t.Errorf("%+v %v / %+v %v", a, err1, o, err2)
	}
}
