//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// The tail yields every event once, in commit order, from any starting position.
func testTail(t *testing.T, _ Driver, s store.Store) {
	if n, err := s.LastPosition(t.Context()); n != 0 || err != nil {
		t.Errorf("the last position of none: %d, %v", n, err)
	}
	const n = 150 // more than a page
	for i := range n {
		wantNone(t, s.Commit(t.Context(), Start(t, ID(i+1), `{}`)))
	}
	for _, step := range []int{1, 7, 64, 65, 0} {
		all := listTail(t, s, store.TailQuery{Limit: step})
		for page := all; len(page) > 0; all = append(all, page...) {
			if step != 0 && len(page) > step {
				t.Fatalf("%d events where %d were asked for", len(page), step)
			}
			page = listTail(t, s, store.TailQuery{After: page[len(page)-1].Position, Limit: step})
		}
		if len(all) != n {
			t.Fatalf("by %d: %d events, want %d", step, len(all), n)
		}
		at := int64(0)
		for i, ev := range all {
			if ev.Position <= at || ev.Owner == "" || ev.Version != 1 || ev.Event.Instance != ID(i+1) {
				t.Fatalf("by %d: event %d at position %d after %d, of %s of %q, version %d", step, i, ev.Position, at, ev.Event.Instance, ev.Owner, ev.Version)
			}
			at = ev.Position
		}
		if last, err := s.LastPosition(t.Context()); last != at || err != nil {
			t.Errorf("the last position is %d (%v), want %d", last, err, at)
		}
	}
}

func listTail(t testing.TB, s store.Store, q store.TailQuery) []store.PlacedEvent {
	t.Helper()
	return collect(t, s.EventsAfter(t.Context(), q))
}

// A tail limited to an owner, workflow, instance or range of positions is the matching part of the whole tail.
func tailFilters(t *testing.T, _ Driver, s store.Store) {
	for i := range 100 {
		c := Start(t, ID(i+1), `{}`)
		wantNone(t, s.Commit(t.Context(), c))
		wantNone(t, s.Commit(t.Context(), Refuse(t, c.Next, "go")))
	}
	whole := listTail(t, s, store.TailQuery{})
	for _, q := range []store.TailQuery{
		{After: 7, UpTo: 150},
		{After: 10, Owner: whole[20].Owner},
		{Owner: "nobody"},
		{Workflow: whole[0].Event.Workflow, UpTo: 9, Limit: 5},
		{Workflow: "none"},
		{Instance: ID(3)},
		{Instance: ID(3), After: 5},
		{Instance: ID(3), UpTo: 5, Owner: whole[4].Owner},
		{Instance: ID(3), Owner: "nobody"},
	} {
		var want []int64
		for _, ev := range whole {
			if ev.Position > q.After && (q.UpTo == 0 || ev.Position <= q.UpTo) && (q.Owner == "" || ev.Owner == q.Owner) &&
				(q.Workflow == "" || ev.Event.Workflow == q.Workflow) && (q.Instance == "" || ev.Event.Instance == q.Instance) &&
				(q.Limit == 0 || len(want) < q.Limit) {
				want = append(want, ev.Position)
			}
		}
		if got := positions(listTail(t, s, q)); !slices.Equal(got, want) {
			t.Errorf("%+v: positions %v, want %v", q, got, want)
		}
	}
}

// The version reported for an event's instance is the current one, regardless of the version of the event.
func tailVersions(t *testing.T, _ Driver, s store.Store) {
	c := Start(t, ID(1), `{}`)
	wantNone(t, s.Commit(t.Context(), c))
	wantNone(t, s.Commit(t.Context(), MigrateTo(t, c.Next, 2, c.Next.State)))
	var was, is []int
	for _, ev := range listTail(t, s, store.TailQuery{}) {
		was, is = append(was, ev.Event.Version), append(is, ev.Version)
	}
	if !slices.Equal(was, []int{1, 2}) || !slices.Equal(is, []int{2, 2}) {
		t.Errorf("events of versions %v, their instance now %v", was, is)
	}
}

// A lesson without an event counts like one with an event.
func testLessons(t *testing.T, _ Driver, s store.Store) {
	for i := range 3 {
		wantNone(t, s.Commit(t.Context(), store.Commit{Lesson: newRefusal("a", "case", i)}))
	}
	wantRefusals(t, s, "a", noon, 3)
	wantNone(t, s.Commit(t.Context(), store.Commit{Lesson: &store.Lesson{Guard: "a", Cleared: true, At: Epoch}}))
	wantRefusals(t, s, "a", noon, 0)
	if n, err := s.LastPosition(t.Context()); n != 0 || err != nil {
		t.Errorf("a lesson is event %d, %v", n, err)
	}
}

// Running instances are counted for each owner, up to the requested limit.
func testRunning(t *testing.T, _ Driver, s store.Store) {
	owner := ""
	for i := range 5 {
		c := Start(t, ID(i+1), `{}`)
		owner = c.Next.Owner
		wantNone(t, s.Commit(t.Context(), c))
	}
	for most, want := range map[int]int{1: 1, 4: 4, 5: 5, 100: 5} {
		q := store.InstanceQuery{Owner: owner, Status: record.Running, Heads: true, Limit: most}
		if n := len(listInstances(t, s, q)); n != want {
			t.Errorf("up to %d: %d, want %d", most, n, want)
		}
	}
	if n := len(listInstances(t, s, store.InstanceQuery{Owner: owner + "x", Status: record.Running, Heads: true})); n != 0 {
		t.Errorf("of another owner: %d", n)
	}
}

// A reader that follows a store to which two processes write receives each event once, in the order of positions. No
// event appears below a position that was already seen.
func followWriters(t *testing.T, d Driver, s store.Store) {
	other := d.Beside(t, s)
	defer closeStore(t, other)
	const writers, each = 16, 8
	stores := []store.Store{s, other}
	followed := make(chan []store.PlacedEvent, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		var all []store.PlacedEvent
		for at := int64(0); len(all) < writers*each && ctx.Err() == nil; {
			for ev, err := range other.EventsAfter(ctx, store.TailQuery{After: at}) {
				if err != nil {
					t.Errorf("follow from %d: %v", at, err)
					break
				}
				all, at = append(all, ev), ev.Position
			}
		}
		followed <- all
	}()
	atOnce(writers, func(i int) {
		if err := stores[i%2].Commit(t.Context(), Start(t, ID(i), `{}`)); err != nil {
			t.Errorf("start %d: %v", i, err)
			return
		}
		commitContended(t, stores[i%2], ID(i), each-1)
	})
	all := <-followed
	next := map[string]int64{}
	for i, ev := range all {
		if ev.Position != int64(i)+1 {
			t.Fatalf("event %d is at position %d", i+1, ev.Position)
		}
		if next[ev.Event.Instance]++; ev.Event.Seq != next[ev.Event.Instance] {
			t.Fatalf("position %d has event %d of %s, want %d", ev.Position, ev.Event.Seq, ev.Event.Instance, next[ev.Event.Instance])
		}
	}
	for _, db := range stores {
		if last, err := db.LastPosition(t.Context()); err != nil || last != int64(len(all)) {
			t.Errorf("the last position is %d (%v), and %d events were found", last, err, len(all))
		}
	}
}

// While a write is blocked in its transaction, its events have no position. Concurrent writes of others appear in
// commit order.
func positionsOfSlowWrites(t *testing.T, d Driver, s store.Store) {
	if d.Beside == nil {
		t.Skip("the driver's data cannot be shared")
	}
	mustCommit(t, s, Start(t, ID(1), `{}`))
	other := d.Beside(t, s)
	defer closeStore(t, other)
	release := sync.OnceFunc(d.Stall(t, s))
	defer release()
	done := make(chan error, 2)
	go func() { done <- s.Commit(t.Context(), Start(t, ID(2), `{}`)) }()
	go func() { done <- other.Commit(t.Context(), Start(t, ID(3), `{}`)) }()
	for _, db := range []store.Store{s, other} {
		if all := listTail(t, db, store.TailQuery{}); len(all) != 1 {
			t.Errorf("%d events have a position while writes are held up", len(all))
		}
	}
	release()
	for range 2 {
		wantNone(t, <-done)
	}
	for i, ev := range listTail(t, other, store.TailQuery{}) {
		if ev.Position != int64(i)+1 {
			t.Errorf("event %d is at position %d", i+1, ev.Position)
		}
	}
	if last, err := s.LastPosition(t.Context()); last != 3 || err != nil {
		t.Errorf("the last position is %d (%v), want 3", last, err)
	}
}

// A waiting reader is woken by commits of another process.
func testWaking(t *testing.T, s, other store.Store) {
	w, ok := s.(store.Waker)
	if !ok {
		t.Skip("the driver has no Waker")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	wake, stop := w.Subscribe(ctx)
	defer stop()
	also, stopAlso := w.Subscribe(ctx)
	for i := range 20 {
		mustCommit(t, other, Start(t, ID(i), `{}`))
		select {
		case <-wake:
		case <-ctx.Done():
			t.Fatal("the reader was not woken")
		}
	}
	select {
	case <-also:
	case <-ctx.Done():
		t.Error("the second was not woken")
	}
	stopAlso()
	stopAlso()
	left, cancelLeft := context.WithCancel(ctx)
	_, stopLeft := w.Subscribe(left)
	cancelLeft()
	stopLeft()
	w.Subscribe(t.Context()) // Close ends listeners that were never stopped
}
