package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// indexAll indexes and counts everything.
func indexAll(t testing.TB, s *sqlite.Store) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = s.IndexOnce(t.Context(), func() {}); err != nil {
			t.Fatal(err)
		}
	}
}

// The figures equal a recount of the decisions, whatever was written, removed and indexed, by any process and after
// any number of restarts.
func TestFiguresEqualARecount(t *testing.T) {
	storetest.SkipUnlessLong(t)
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		path := newPath(t)
		stores := []*sqlite.Store{openAt(t, path), openAt(t, path)}
		defer func() {
			for _, s := range stores {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
		pick := func() *sqlite.Store { return rapid.SampledFrom(stores).Draw(r, "store") }
		histories := map[string][]record.Instance{}
		clock := storetest.Epoch
		commit := func(c store.Commit) {
			if err := pick().Commit(t.Context(), c); err != nil {
				r.Fatal(err)
			}
			histories[c.Next.ID] = append(histories[c.Next.ID], c.Next)
		}
		at := func(e *record.Event) {
			clock = clock.Add(time.Second)
			e.Time = clock
		}
		commit(storetest.Start(t, storetest.ID(0), `{}`, at))
		db := raw(t, path)
		defer db.Close()
		// This creates several blocks. Positions never change otherwise.
		run(t, db, fmt.Sprintf("UPDATE events SET pos = pos + %d", rapid.SampledFrom([]int{0, 4090, 8191}).Draw(r, "first position")))
		last := func() (inst record.Instance) {
			h := histories[storetest.ID(rapid.IntRange(0, len(histories)-1).Draw(r, "instance"))]
			return h[len(h)-1]
		}
		truncate := func(*rapid.T) {
			inst := last()
			h := histories[inst.ID]
			floor := h[rapid.IntRange(0, len(h)-1).Draw(r, "floor")]
			c := storetest.Truncate(t, inst, floor)
			if err := pick().Commit(t.Context(), c); err != nil {
				r.Fatal(err)
			}
			histories[inst.ID] = append(h, c.Next)
		}
		r.Repeat(map[string]func(*rapid.T){
			"start": func(*rapid.T) {
				owner := rapid.SampledFrom([]string{"local:a", "local:b"}).Draw(r, "owner")
				commit(storetest.Start(t, storetest.ID(len(histories)), `{}`, storetest.By(owner), at))
			},
			"refuse": func(*rapid.T) { commit(storetest.Refuse(t, last(), "submit", at)) },
			"advance": func(*rapid.T) {
				commit(storetest.Advance(t, last(), "reviewing", `{}`, at))
			},
			"checkpoint": func(*rapid.T) { commit(storetest.CheckpointOf(t, last())) },
			"truncate":   truncate,
			"index": func(*rapid.T) {
				between := rapid.SampledFrom([]func(*rapid.T){func(*rapid.T) {}, truncate}).Draw(r, "between")
				if _, err := pick().IndexOnce(t.Context(), func() { between(r) }); err != nil && !errors.Is(err, store.ErrConflict) {
					r.Fatal(err)
				}
			},
			"restart": func(*rapid.T) {
				i := rapid.IntRange(0, 1).Draw(r, "store")
				if err := stores[i].Close(); err != nil {
					r.Fatal(err)
				}
				stores[i] = openAt(t, path)
			},
			"": func(*rapid.T) {
				q := store.DecisionQuery{Owner: rapid.SampledFrom([]string{"", "", "local:a"}).Draw(r, "of")}
				if rapid.Bool().Draw(r, "by time") {
					q.Since = storetest.Epoch.Add(time.Duration(rapid.IntRange(0, 20).Draw(r, "since")) * time.Second)
				}
				storetest.RequireFigures(t, pick(), q)
			},
		})
	})
}

// Figures read no decision that is already counted: a block is a single row, until one of its decisions is removed.
func TestFiguresAreKept(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t))
	defer s.Close()
	start := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	grown(t, s, start.Next, 300)
	indexAll(t, s)
	parts := func() (n int) {
		for _, err := range s.Figures(t.Context(), store.DecisionQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	if n := parts(); n != 2 { // a start and refusals
		t.Errorf("%d parts, want 2", n)
	}
	db := raw(t, s.Path())
	defer db.Close()
	run(t, db, "DELETE FROM events WHERE pos = 7")
	if n := parts(); n != 300 {
		t.Errorf("%d parts after one was removed, want one each", n)
	}
	storetest.RequireFigures(t, s, store.DecisionQuery{})
	indexAll(t, s)
	if n := parts(); n != 2 {
		t.Errorf("%d parts after they were counted again, want 2", n)
	}
	storetest.RequireFigures(t, s, store.DecisionQuery{})
	run(t, db, `UPDATE decision_times SET figures = x'00'`)
	storetest.RequireFigures(t, s, store.DecisionQuery{})
}

// Decisions are indexed in the background, and no goroutine outlives the store.
func TestDecisionsAreIndexedInTheBackground(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: newPath(t)})
	if err != nil {
		t.Fatal(err)
	}
	start := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	grown(t, s, start.Next, 299)
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for number(t, s, reachedByIndex) < 300 {
		select {
		case <-tick.C:
		case <-deadline.Done():
			t.Fatalf("indexed up to %d", number(t, s, reachedByIndex))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, before)
}

// Lists by changing columns of instances, with more matches than are counted one by one.
func TestListsOfManyInstances(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t))
	defer s.Close()
	var all []record.Instance
	for n := range 1100 {
		c := storetest.Start(t, storetest.ID(n), `{}`)
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if n%100 == 7 {
			c = storetest.Advance(t, c.Next, "done", `{}`, func(e *record.Event) { e.Status = record.Complete })
			if err := s.Commit(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, c.Next)
	}
	for _, q := range []store.InstanceQuery{
		{Status: record.Complete},
		{Status: record.Cancelled},
		{State: "done", Limit: 5},
		{State: "none"},
		{Workflow: "doc", Status: record.Complete, BeforeID: storetest.ID(500)},
		{Workflow: "doc", State: "draft"},
		{Owner: all[0].Owner, Workflow: "doc", State: "done", Heads: true},
		{Owner: all[0].Owner, Workflow: "none", Status: record.Running},
		{State: "done", MovedAfter: 600},
	} {
		var want, got []string
		for n, i := range slices.Backward(all) {
			if (q.Status == "" || q.Status == i.Status) && (q.State == "" || q.State == i.State) && (q.Workflow == "" || q.Workflow == i.Workflow) &&
				(q.BeforeID == "" || i.ID < q.BeforeID) && (q.MovedAfter == 0 || n >= 594) && (q.Limit == 0 || len(want) < q.Limit) {
				want = append(want, i.ID)
			}
		}
		for i, err := range s.Instances(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, i.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %d instances, want %d", q, len(got), len(want))
		}
	}
}
