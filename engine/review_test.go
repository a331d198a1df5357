package engine_test

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
)

var (
	rita = engine.Principal{ID: "rev:rita", Role: engine.RoleReviewer}
	ralf = engine.Principal{ID: "rev:ralf", Role: engine.RoleReviewer}
)

// guardedFlow asks a person about "release"; "fix" leads back, "note" stays in the state and changes the
// context.
const guardedFlow = `{"name":"guarded","initialState":"ready","sensitive":["/token"],"states":{
	"ready":{"transitions":{
		"release":{"target":"live","requiredFields":["why"],"requireAssurance":"human",
			"validator":"(data) => ({valid: data.why !== 'forbidden', confidence: 0.9, reason: 'forbidden word'})"},
		"other":{"target":"live","requireAssurance":"human"},
		"note":"ready","fix":"broken"}},
	"broken":{"transitions":{"mend":"ready"}},
	"live":{"transitions":{"undo":"ready","done":"over"}},
	"over":{"final":true}}}`

func newReviewBench(t testing.TB) *bench {
	t.Helper()
	return newReviewBenchOn(t, memory.New(), nil)
}

func newReviewBenchOn(t testing.TB, db store.Store, fetcher judge.Fetcher) *bench {
	t.Helper()
	return newBenchWith(t, db, fetcher, func(c *engine.Config) { c.ReviewPath = true })
}

// parkable returns a bench with an instance of guardedFlow that ada started.
func parkable(t testing.TB) (*bench, string) {
	t.Helper()
	b := newReviewBench(t)
	b.define(operator, guardedFlow)
	return b, b.start(agent, "guarded", `{"n":1}`).ID
}

// parked requests an action and fails the test unless a review was opened for it.
func (b *bench) parked(p engine.Principal, id, action, data string) engine.ReviewSummary {
	b.t.Helper()
	before := b.load(id)
	r := b.advance(p, id, action, data)
	if r.Review == nil || r.Decision.Applied || r.Decision.Outcome != judge.Escalate || r.Review.Status != record.ReviewOpen {
		b.t.Fatalf("%s was not parked: %+v", action, r)
	}
	if after := b.load(id); after.Revision != before.Revision || after.State != before.State || string(after.Context) != string(before.Context) {
		b.t.Fatalf("parking changed the instance: %+v -> %+v", before, after)
	}
	return *r.Review
}

func (b *bench) resolve(p engine.Principal, id string, how judge.Outcome) (engine.ResolveResult, error) {
	b.t.Helper()
	return b.Resolve(b.t.Context(), p, engine.ResolveRequest{ID: id, Decision: how, Reason: "looked at it"})
}

func (b *bench) review(id string) store.Review {
	b.t.Helper()
	row, err := store.FindReview(b.t.Context(), b.store, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return row
}

func (b *bench) verify(id string) {
	b.t.Helper()
	query := store.EventQuery{Instance: id}
	if err := record.Verify(b.store.Events(b.t.Context(), query)); err != nil {
		b.t.Errorf("chain: %v", err)
	}
	inst, err := record.FoldAt(b.store.Events(b.t.Context(), query), 0)
	if now := b.load(id); err != nil || inst.State != now.State || string(inst.Context) != string(now.Context) || len(inst.Facts.Reviews) != len(now.Facts.Reviews) {
		b.t.Errorf("the history folds to %+v, %v; stored is %+v", inst, err, now)
	}
}

func TestReviewApproved(t *testing.T) {
	t.Parallel()
	b, id := parkable(t)
	parked := b.parked(agent, id, "release", `{"why":"it is time","token":"very-secret"}`)
	status, err := b.Status(t.Context(), agent, id)
	if err != nil || len(status.Reviews) != 1 || status.Reviews[0].ID != parked.ID || status.Reviews[0].Next == "" {
		t.Fatalf("status: %+v, %v", status.Reviews, err)
	}
	if ev := b.events(id); strings.Contains(string(ev[len(ev)-1].Body()), "very-secret") {
		t.Error("the history holds what is sensitive")
	}
	got, err := b.resolve(rita, parked.ID, judge.Approve)
	if err != nil || !got.Applied || got.State != "live" || got.Review.Status != record.ReviewResolved || got.Review.By != rita.ID {
		t.Fatalf("%+v, %v", got, err)
	}
	d := got.Decision
	if d.DecidedBy != judge.ByReviewer || d.Assurance != judge.AssuranceHuman || d.Confidence != 0.9 || !strings.Contains(d.Reasoning, rita.ID) {
		t.Errorf("decision: %+v", d)
	}
	inst := b.opened(id)
	if string(inst.Context) != `{"n":1,"why":"it is time","token":"very-secret"}` || len(inst.Facts.Reviews) != 0 {
		t.Errorf("instance: %+v", inst)
	}
	if who := inst.Facts.Performed["release"]; len(who) != 2 || who[0] != agent.ID || who[1] != rita.ID {
		t.Errorf("performed by %v: both had a part in it", who)
	}
	if row := b.review(parked.ID); row.Data != nil || row.Resolution != judge.Approve || row.Reason != "looked at it" {
		t.Errorf("the review that has ended: %+v", row)
	}
	events := b.events(id)
	last := events[len(events)-2:]
	if last[0].Kind != record.Reviewed || last[0].Principal != rita.ID || last[1].Kind != record.Advanced || last[1].Principal != agent.ID || last[1].Review.By != rita.ID {
		t.Errorf("history: %+v", last)
	}
	b.verify(id)
}

func TestReviewRejected(t *testing.T) {
	t.Parallel()
	b, id := parkable(t)
	parked := b.parked(agent, id, "release", `{"why":"it is time"}`)
	got, err := b.resolve(rita, parked.ID, judge.Reject)
	if err != nil || got.Applied || got.State != "ready" || got.Review.Decision != judge.Reject || got.Decision.Code != judge.CodeReviewRejected {
		t.Fatalf("%+v, %v", got, err)
	}
	if got.Revision != 1 {
		t.Errorf("a rejection changed the revision: %d", got.Revision)
	}
	history, err := b.History(t.Context(), agent, engine.HistoryRequest{ID: id})
	if err != nil || history.Count != 3 || history.Decisions[2].DecidedBy != judge.ByReviewer || history.Decisions[2].ReviewID != parked.ID {
		t.Errorf("history: %+v, %v", history, err)
	}
	b.verify(id)
}

func TestSameDataGetTheSameReview(t *testing.T) {
	t.Parallel()
	b, id := parkable(t)
	first := b.parked(agent, id, "release", `{"why":"a","x":[1,{"b":2}]}`)
	seq := b.load(id).Seq
	for _, same := range []string{`{"why":"a","x":[1,{"b":2}]}`, `{ "x": [1, {"b":2}], "why":"\u0061" }`} {
		if again := b.parked(agent, id, "release", same); again.ID != first.ID {
			t.Errorf("%s got the review %s, not %s", same, again.ID, first.ID)
		}
	}
	if got := b.load(id).Seq; got != seq {
		t.Errorf("asking again was recorded: seq %d, then %d", seq, got)
	}
	b.refused(agent, id, "release", `{"why":"forbidden"}`, judge.CodeValidatorRejected)
	if b.review(first.ID).Status != record.ReviewOpen {
		t.Error("a refused request took the place of one that waits")
	}
	second := b.parked(agent, id, "release", `{"why":"b"}`)
	if second.ID == first.ID || b.review(first.ID).Status != record.ReviewSuperseded || b.review(first.ID).Data != nil {
		t.Errorf("other data: %+v", b.review(first.ID))
	}
	if inst := b.load(id); len(inst.Facts.Reviews) != 1 {
		t.Errorf("%d reviews of one action are open", len(inst.Facts.Reviews))
	}
	if another := b.parked(agent, id, "other", `{}`); another.ID == second.ID || len(b.load(id).Facts.Reviews) != 2 {
		t.Error("another action has a review of its own")
	}
	_, err := b.resolve(rita, first.ID, judge.Approve)
	if e := wantCode(t, err, engine.CodeReviewClosed); !strings.Contains(e.Message, "superseded") {
		t.Error(e.Message)
	}
	b.verify(id)
}

// withoutReview is a store that lost one review in a repair.
type withoutReview struct {
	store.Store
	lost string
}

func (w *withoutReview) Reviews(ctx context.Context, q store.ReviewQuery) iter.Seq2[store.Review, error] {
	return func(yield func(store.Review, error) bool) {
		for row, err := range w.Store.Reviews(ctx, q) {
			if row.ID != w.lost && !yield(row, err) {
				return
			}
		}
	}
}

// If the row of a review is lost, the instance can still be read, and the same request opens another
// review.
func TestLostReviewIsRequestedAgain(t *testing.T) {
	t.Parallel()
	s := &withoutReview{Store: memory.New()}
	b := newReviewBenchOn(t, s, nil)
	b.define(operator, guardedFlow)
	id := b.start(agent, "guarded", `{"n":1}`).ID
	s.lost = b.parked(agent, id, "release", `{"why":"a"}`).ID
	if now, err := b.Status(t.Context(), agent, id); err != nil || len(now.Reviews) != 0 {
		t.Fatalf("got %+v, %v", now.Reviews, err)
	}
	again := b.parked(agent, id, "release", `{"why":"a"}`)
	if open := b.load(id).Facts.Reviews; again.ID == s.lost || len(open) != 1 || open[0].ID != again.ID {
		t.Errorf("got %s, open: %+v", again.ID, open)
	}
	b.verify(id)
}

func TestMovesMakeReviewsStale(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(*bench, string){
		"another action": func(b *bench, id string) { b.moved(agent, id, "note", `{"n":2}`, "ready") },
		"away":           func(b *bench, id string) { b.moved(agent, id, "fix", `{}`, "broken") },
		"cancel": func(b *bench, id string) {
			if _, err := b.Cancel(b.t.Context(), agent, engine.CancelRequest{ID: id}); err != nil {
				b.t.Fatal(err)
			}
		},
		"rollback": func(b *bench, id string) {
			cp, err := b.Checkpoint(b.t.Context(), agent, engine.CheckpointRequest{ID: id})
			if err != nil {
				b.t.Fatal(err)
			}
			if b.load(id).Facts.Reviews == nil {
				b.t.Error("a checkpoint ended the reviews")
			}
			if _, err := b.Rollback(b.t.Context(), operator, engine.RollbackRequest{ID: id, CheckpointID: cp.CheckpointID}); err != nil {
				b.t.Fatal(err)
			}
		},
		"an approval of another action": func(b *bench, id string) {
			other := b.parked(agent, id, "other", `{}`)
			if r, err := b.resolve(rita, other.ID, judge.Approve); err != nil || !r.Applied {
				b.t.Fatalf("%+v, %v", r, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, id := parkable(t)
			b.t = t
			parked := b.parked(agent, id, "release", `{"why":"a"}`)
			move(b, id)
			row := b.review(parked.ID)
			if row.Status != record.ReviewStale || row.Reason == "" || row.Data != nil || len(b.load(id).Facts.Reviews) != 0 {
				t.Errorf("%+v", row)
			}
			before := b.load(id)
			_, err := b.resolve(rita, parked.ID, judge.Approve)
			wantCode(t, err, engine.CodeReviewClosed)
			if b.load(id).Seq != before.Seq {
				t.Error("a stale review changed the instance")
			}
			b.verify(id)
		})
	}
}

func TestReviewsExpire(t *testing.T) {
	t.Parallel()
	flow := func(review string) string {
		return strings.Replace(guardedFlow, `"requiredFields":["why"],`, `"requiredFields":["why"],"review":`+review+`,`, 1)
	}
	later := func(b *bench, d time.Duration) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.now = b.now.Add(d)
	}
	start := func(t *testing.T, review string) (*bench, string, engine.ReviewSummary) {
		b := newReviewBench(t)
		b.define(operator, flow(review))
		id := b.start(agent, "guarded", `{}`).ID
		return b, id, b.parked(agent, id, "release", `{"why":"a"}`)
	}
	t.Run("rejected", func(t *testing.T) {
		t.Parallel()
		b, id, parked := start(t, `{"expiresAfter":"1h","priority":"high"}`)
		if parked.Priority != record.PriorityHigh || parked.ExpiresAt.Sub(parked.ParkedAt) != time.Hour {
			t.Errorf("%+v", parked)
		}
		later(b, 2*time.Hour)
		if s, err := b.Status(t.Context(), agent, id); err != nil || s.Reviews[0].Status != record.ReviewExpired {
			t.Errorf("shown as %+v, %v, before anybody has written it down", s.Reviews, err)
		}
		if w, err := b.WaitingReviews(t.Context()); w != (engine.Waiting{}) || err != nil {
			t.Errorf("it counts: %+v, %v", w, err)
		}
		_, err := b.resolve(rita, parked.ID, judge.Approve)
		if e := wantCode(t, err, engine.CodeReviewClosed); !strings.Contains(e.Message, "expired") {
			t.Error(e.Message)
		}
		later(b, -3*time.Hour) // a clock that goes back revives nothing
		_, err = b.resolve(rita, parked.ID, judge.Approve)
		wantCode(t, err, engine.CodeReviewClosed)
		if again := b.parked(agent, id, "release", `{"why":"a"}`); again.ID == parked.ID {
			t.Error("an expired review was returned")
		}
		b.verify(id)
	})
	t.Run("by whoever asks again", func(t *testing.T) {
		t.Parallel()
		b, id, parked := start(t, `{"expiresAfter":"1h"}`)
		later(b, 2*time.Hour)
		if again := b.parked(agent, id, "release", `{"why":"a"}`); again.ID == parked.ID || b.review(parked.ID).Status != record.ReviewExpired {
			t.Errorf("%+v", b.review(parked.ID))
		}
		b.verify(id)
	})
	t.Run("raised", func(t *testing.T) {
		t.Parallel()
		b, id, parked := start(t, `{"expiresAfter":"1h","onExpire":"raise"}`)
		later(b, 2*time.Hour)
		if w, err := b.WaitingReviews(t.Context()); w.Count != 1 || !w.Since.Equal(parked.ParkedAt) || err != nil {
			t.Errorf("before it is raised: %+v, %v", w, err)
		}
		if n, err := b.ExpireReviews(t.Context()); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if n, err := b.ExpireReviews(t.Context()); n != 0 || err != nil {
			t.Fatalf("again: %d, %v", n, err)
		}
		if w, err := b.WaitingReviews(t.Context()); w.Count != 1 || !w.Since.Equal(parked.ParkedAt) || err != nil {
			t.Errorf("raised: %+v, %v", w, err)
		}
		if row := b.review(parked.ID); row.Priority != record.PriorityUrgent || row.Status != record.ReviewOpen || row.Data == nil {
			t.Errorf("%+v", row)
		}
		if r, err := b.resolve(rita, parked.ID, judge.Approve); err != nil || !r.Applied {
			t.Errorf("%+v, %v", r, err)
		}
		b.verify(id)
	})
	t.Run("never", func(t *testing.T) {
		t.Parallel()
		b, _, parked := start(t, `{"expiresAfter":"never"}`)
		later(b, 20*365*24*time.Hour)
		if n, err := b.ExpireReviews(t.Context()); n != 0 || err != nil || !parked.ExpiresAt.IsZero() {
			t.Errorf("%d, %v, %v", n, err, parked.ExpiresAt)
		}
	})
}

func TestReviewsAreListed(t *testing.T) {
	t.Parallel()
	b := newReviewBench(t)
	b.define(operator, guardedFlow)
	b.define(operator, strings.Replace(named(guardedFlow, "hot"), `"why"]`, `"why"],"review":{"priority":"urgent"}`, 1))
	var ids []string
	for _, flow := range []string{"guarded", "hot", "guarded"} {
		id := b.start(agent, flow, `{}`).ID
		ids = append(ids, b.parked(agent, id, "release", `{"why":"a"}`).ID)
	}
	bob := b.start(other, "guarded", `{}`).ID
	ids = append(ids, b.parked(other, bob, "release", `{"why":"b"}`).ID)
	list := func(p engine.Principal, req engine.ReviewsRequest) string {
		t.Helper()
		r, err := b.Reviews(t.Context(), p, req)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range r.Reviews {
			for i, id := range ids {
				if id == s.ID {
					got = append(got, string(rune('0'+i)))
				}
			}
		}
		if r.NextCursor != "" {
			req.Cursor = r.NextCursor
			next, err := b.Reviews(t.Context(), p, req)
			if err != nil || next.Count == 0 {
				t.Errorf("the next page: %+v, %v", next, err)
			}
			got = append(got, "+")
		}
		return strings.Join(got, "")
	}
	for _, c := range []struct {
		who  engine.Principal
		req  engine.ReviewsRequest
		want string
	}{
		{rita, engine.ReviewsRequest{}, "1023"},
		{agent, engine.ReviewsRequest{}, "102"},
		{other, engine.ReviewsRequest{}, "3"},
		{operator, engine.ReviewsRequest{Workflow: "hot"}, "1"},
		{rita, engine.ReviewsRequest{Instance: bob}, "3"},
		{agent, engine.ReviewsRequest{Instance: bob}, ""},
		{rita, engine.ReviewsRequest{Limit: 3}, "102+"},
		{rita, engine.ReviewsRequest{Status: "resolved"}, ""},
		{rita, engine.ReviewsRequest{Status: "all"}, "1023"},
	} {
		if got := list(c.who, c.req); got != c.want {
			t.Errorf("%s sees %s of %+v, want %s", c.who.ID, got, c.req, c.want)
		}
	}
	for _, bad := range []engine.ReviewsRequest{{Status: "opne"}, {Cursor: "x"}, {Limit: -1}, {Limit: 501}} {
		_, err := b.Reviews(t.Context(), rita, bad)
		wantCode(t, err, engine.CodeInvalidArgument)
	}
}

func TestReviewIsShownWhole(t *testing.T) {
	t.Parallel()
	b, id := parkable(t)
	parked := b.parked(agent, id, "release", `{"why":"it is time","token":"very-secret"}`)
	for _, p := range []engine.Principal{agent, operator} {
		v, err := b.Review(t.Context(), p, parked.ID)
		if err != nil || string(v.Data) != `{"why":"it is time","token":"very-secret"}` || v.Escalation.Code != judge.CodeAssuranceTooLow || len(v.Escalation.Opinions) == 0 || string(v.Context) != `{"n":1}` {
			t.Errorf("%s: %+v, %v", p.ID, v, err)
		}
	}
	v, err := b.Review(t.Context(), rita, parked.ID)
	var data map[string]string
	if err != nil || json.Unmarshal(v.Data, &data) != nil || data["why"] != "it is time" || data["token"] != "[masked]" {
		t.Errorf("a reviewer sees %s, %v", v.Data, err)
	}
	_, err = b.Review(t.Context(), other, parked.ID)
	wantCode(t, err, engine.CodeUnknownReview)
	_, err = b.Review(t.Context(), rita, "rev-none")
	wantCode(t, err, engine.CodeUnknownReview)
}

// withoutEvents is a store that lost all events from one on.
type withoutEvents struct {
	store.Store
	from int64
}

func (w *withoutEvents) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for ev, err := range w.Store.Events(ctx, q) {
			if (w.from == 0 || ev.Seq < w.from) && !yield(ev, err) {
				return
			}
		}
	}
}

// A review whose event is lost is a defect of the store: retrying does not help, and the code must not
// suggest it.
func TestAReviewWithoutItsEvent(t *testing.T) {
	t.Parallel()
	s := &withoutEvents{Store: memory.New()}
	b := newReviewBenchOn(t, s, nil)
	b.define(operator, guardedFlow)
	id := b.start(agent, "guarded", `{"n":1}`).ID
	parked := b.parked(agent, id, "release", `{"why":"a"}`)
	s.from = b.load(id).Seq
	_, err := b.resolve(rita, parked.ID, judge.Approve)
	wantCode(t, err, engine.CodeInternal)
	_, err = b.Review(t.Context(), rita, parked.ID)
	wantCode(t, err, engine.CodeInternal)
}
