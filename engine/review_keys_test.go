package engine_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// roundFlow returns to the state where a person is asked, so that a retry could be judged again.
const roundFlow = `{"name":"round","initialState":"a","states":{
	"a":{"transitions":{"go":{"target":"b","requireAssurance":"human","review":{"expiresAfter":"1h"}},"note":"a"}},
	"b":{"transitions":{"back":"a"}}}}`

func roundBench(t testing.TB) (*bench, string) {
	t.Helper()
	b := newReviewBench(t)
	b.define(operator, roundFlow)
	return b, b.start(agent, "round", `{}`).ID
}

func (b *bench) goWith(key, data string) engine.AdvanceResult {
	b.t.Helper()
	r, err := b.Advance(b.t.Context(), agent, engine.AdvanceRequest{ID: b.instanceID(), Action: "go", Data: document.ReadTrusted([]byte(data)), Key: key})
	if err != nil {
		b.t.Fatalf("go with key %s: %v", key, err)
	}
	return r
}

// instanceID returns the id of the only instance of a bench.
func (b *bench) instanceID() string {
	b.t.Helper()
	for inst, err := range b.store.Instances(b.t.Context(), store.InstanceQuery{}) {
		if err != nil {
			b.t.Fatal(err)
		}
		return inst.ID
	}
	b.t.Fatal("no instance")
	return ""
}

// Keys that opened or joined a review are answered with its present state, and never park or perform the
// move again.
func TestKeysOfAReviewAreAnsweredAfterItEnded(t *testing.T) {
	t.Parallel()
	type ending struct {
		end             func(*testing.T, *bench, string)
		status          record.ReviewStatus
		outcome         judge.Outcome
		applied         bool
		state, nowAgain string
	}
	for name, tc := range map[string]ending{
		"approved": {func(t *testing.T, b *bench, review string) {
			if _, err := b.resolve(rita, review, judge.Approve); err != nil {
				t.Fatal(err)
			}
		}, record.ReviewResolved, judge.Approve, true, "b", "back"},
		"rejected": {func(t *testing.T, b *bench, review string) {
			if _, err := b.resolve(rita, review, judge.Reject); err != nil {
				t.Fatal(err)
			}
		}, record.ReviewResolved, judge.Reject, false, "a", ""},
		"stale": {func(_ *testing.T, b *bench, _ string) {
			b.moved(agent, b.instanceID(), "note", `{}`, "a")
		}, record.ReviewStale, judge.Escalate, false, "a", ""},
		"superseded": {func(_ *testing.T, b *bench, _ string) {
			b.parked(agent, b.instanceID(), "go", `{"x":2}`)
		}, record.ReviewSuperseded, judge.Escalate, false, "a", ""},
		"expired": {func(t *testing.T, b *bench, _ string) {
			b.pass(2 * time.Hour)
			if _, err := b.ExpireReviews(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, record.ReviewExpired, judge.Escalate, false, "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, id := roundBench(t)
			opened, joined := b.goWith("k1", `{"x":1}`), b.goWith("k2", `{"x":1}`)
			if opened.Review == nil || joined.Review == nil || opened.Review.ID != joined.Review.ID || joined.Replayed {
				t.Fatalf("opened %+v, joined %+v", opened.Review, joined.Review)
			}
			tc.end(t, b, opened.Review.ID)
			if tc.nowAgain != "" { // the move is legal again there
				b.moved(agent, id, tc.nowAgain, `{}`, "a")
			}
			before := b.load(id).Seq
			for _, key := range []string{"k1", "k2"} {
				r := b.goWith(key, `{"x":1}`)
				if !r.Replayed || r.Review == nil || r.Review.ID != opened.Review.ID || r.Review.Status != tc.status ||
					r.Decision.Applied != tc.applied || r.Decision.Outcome != tc.outcome || r.State != tc.state {
					t.Errorf("%s: %+v, review %+v", key, r, r.Review)
				}
			}
			if after := b.load(id).Seq; after != before {
				t.Errorf("%d events were recorded for retries", after-before)
			}
			b.verify(id)
		})
	}
}

// A key that arrives just after the review has ended is not bound: the request is judged again.
func TestKeyOfAReviewThatEndsMeanwhile(t *testing.T) {
	t.Parallel()
	s := &busyStore{Store: memory.New(), method: "Commit"}
	b := newReviewBenchOn(t, s, &world{})
	b.define(operator, roundFlow)
	id := b.start(agent, "round", `{}`).ID
	opened := b.goWith("k1", `{"x":1}`)
	s.meanwhile = func() {
		if _, err := b.resolve(rita, opened.Review.ID, judge.Reject); err != nil {
			t.Error(err)
		}
	}
	if r := b.goWith("k2", `{"x":1}`); r.Replayed || r.Review == nil || r.Review.ID != opened.Review.ID || r.Decision.Code != judge.CodeReviewRejected {
		t.Errorf("%+v, review %+v", r, r.Review)
	}
	b.verify(id)
}

// An approval that could not be carried out also binds the reviewer's key.
func TestKeyOfAnApprovalThatFoundTheReviewStale(t *testing.T) {
	t.Parallel()
	w := &world{content: `{"v":0}`}
	b := newReviewBenchOn(t, memory.New(), w)
	b.define(operator, watchedFlow)
	id := b.start(agent, "watched", `{}`).ID
	review := b.parked(agent, id, "go", `{}`).ID
	b.pass(20 * time.Minute) // so that the evidence is fetched again
	w.content = `{"v":1}`
	req := engine.ResolveRequest{ID: review, Decision: judge.Approve, Reason: "looked", Key: "k"}
	first, err1 := b.Resolve(t.Context(), rita, req)
	again, err2 := b.Resolve(t.Context(), rita, req)
	if err1 != nil || err2 != nil || first.Applied || first.Review.Status != record.ReviewStale || !again.Replayed || again.Message != first.Message || again.Seq != first.Seq {
		t.Errorf("%+v, %v\n%+v, %v", first, err1, again, err2)
	}
}

// In any order of operations, a key that was answered once always gets the result of the same move, and
// nothing further is recorded for it.
func TestAKeyIsOneMove(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := newReviewBench(t)
		b.define(operator, roundFlow)
		id := b.start(agent, "round", `{}`).ID
		type bound struct{ request, review, decision string }
		keys := map[string]bound{}
		var order []string
		rt.Repeat(map[string]func(*rapid.T){
			"go": func(rt *rapid.T) {
				key := rapid.SampledFrom([]string{"k1", "k2", "k3", "k4"}).Draw(rt, "key")
				data := rapid.SampledFrom([]string{`{"x":1}`, `{"x":2}`}).Draw(rt, "data")
				before := b.load(id)
				r, err := b.Advance(context.Background(), agent, engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(data)), Key: key})
				was, known := keys[key]
				if known && was.request != data {
					if engine.CodeOf(err) != engine.CodeKeyReused || b.load(id).Seq != before.Seq {
						rt.Fatalf("%v", err)
					}
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				review := ""
				if r.Review != nil {
					review = r.Review.ID
				}
				if !known {
					if r.Replayed || b.load(id).Seq == before.Seq {
						rt.Fatalf("the first answer of %s bound nothing: %+v", key, r)
					}
					keys[key] = bound{data, review, r.Decision.ID}
					if review != "" {
						order = append(order, review)
					}
					return
				}
				if !r.Replayed || review != was.review || b.load(id).Seq != before.Seq {
					rt.Fatalf("%s was %+v, got %+v", key, was, r)
				}
				if review == "" {
					if r.Decision.ID != was.decision {
						rt.Fatalf("%s was %+v, got %+v", key, was, r.Decision)
					}
					return
				}
				row := b.review(review)
				approved := row.Resolution == judge.Approve
				if r.Decision.Applied != approved || approved != (r.State == "b") || r.Review.By != row.By {
					rt.Fatalf("%s, review %+v: got %+v", key, row, r)
				}
			},
			"back": func(*rapid.T) { b.advance(agent, id, "back", `{}`) },
			"note": func(*rapid.T) { b.advance(agent, id, "note", `{}`) },
			"time": func(rt *rapid.T) {
				b.pass(time.Duration(rapid.IntRange(0, 70).Draw(rt, "minutes")) * time.Minute)
			},
			"resolve": func(rt *rapid.T) {
				if len(order) == 0 {
					return
				}
				review := rapid.SampledFrom(order).Draw(rt, "review")
				how := rapid.SampledFrom([]judge.Outcome{judge.Approve, judge.Reject}).Draw(rt, "how")
				_, err := b.Resolve(context.Background(), rita, engine.ResolveRequest{ID: review, Decision: how, Reason: "looked"})
				if err != nil && engine.CodeOf(err) != engine.CodeReviewClosed {
					rt.Fatal(err)
				}
			},
		})
		b.verify(id)
	})
}

// A key lasts as long as the event that answered it. Retention keeps that event for a week and until the
// instance ended long enough ago. After that, the key starts a new request.
func TestKeysAfterRetention(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, fading)
	start := func() engine.StartResult {
		t.Helper()
		r, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "fading", Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	id := start().ID
	b.moved(agent, id, "go", `{}`, "b")
	b.pass(40 * day) // a running instance keeps everything
	b.retain(audit.RetainRequest{})
	b.moved(agent, id, "go", `{}`, "c")
	b.pass(29 * day)
	b.retain(audit.RetainRequest{})
	if r := start(); !r.Replayed || r.ID != id {
		t.Fatalf("before the history was due: %+v", r)
	}
	b.pass(2 * day)
	if r := b.retain(audit.RetainRequest{}); r.Events == 0 {
		t.Fatalf("nothing was removed: %+v", r)
	}
	if r := start(); r.Replayed || r.ID == id {
		t.Fatalf("after the event was removed: %+v", r)
	}
}
