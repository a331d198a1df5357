//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// withOther returns a test with two stores on the same data, or the same store twice if its data cannot be shared.
func withOther(promise func(t *testing.T, s, other store.Store)) func(*testing.T, Driver, store.Store) {
	return func(t *testing.T, d Driver, s store.Store) {
		other := s
		if d.Beside != nil {
			other = d.Beside(t, s)
			defer closeStore(t, other)
		}
		promise(t, s, other)
	}
}

// ended is a duration with which a lease has already ended when it is returned.
const ended = -time.Hour

func takeLease(t *testing.T, s store.Store, owner string, d time.Duration) store.Lease {
	t.Helper()
	l, err := s.TakeLease(t.Context(), "job\x00\xff", owner, d)
	wantNone(t, err)
	if l.Name != "job\x00\xff" || l.Owner != owner || l.Ends.IsZero() {
		t.Errorf("the lease of %s: %+v", owner, l)
	}
	return l
}

func testLeases(t *testing.T, s, other store.Store) {
	first := takeLease(t, s, "a", time.Hour)
	if again := takeLease(t, other, "a", 2*time.Hour); again.Number != first.Number || !again.Ends.After(first.Ends) {
		t.Errorf("taken again in time: %+v after %+v", again, first)
	}
	held, err := other.TakeLease(t.Context(), first.Name, "b", time.Hour)
	wantError(t, "another owner", err, store.ErrLeaseTaken)
	if held.Owner != "a" || held.Number != first.Number || !held.Ends.After(first.Ends) {
		t.Errorf("taken: %+v", held)
	}
	if _, err := other.TakeLease(t.Context(), "another job", "b", time.Hour); err != nil {
		t.Errorf("another name: %v", err)
	}
	wantNone(t, s.EndLease(t.Context(), first))
	wantNone(t, s.EndLease(t.Context(), first))
	second := takeLease(t, other, "b", ended)
	if second.Number <= first.Number {
		t.Errorf("number %d after %d", second.Number, first.Number)
	}
	wantNone(t, s.EndLease(t.Context(), first)) // it is not the current lease
	third := takeLease(t, s, "b", time.Hour)
	if third.Number <= second.Number {
		t.Errorf("the same owner, too late: number %d after %d", third.Number, second.Number)
	}
	wantNone(t, s.EndLease(t.Context(), second))
	_, err = s.TakeLease(t.Context(), first.Name, "a", time.Hour)
	wantError(t, "after an earlier lease was ended", err, store.ErrLeaseTaken)

	// DropLeases drops a lease only if it ended long enough ago and has the prefix. Afterwards it looks as if another
	// owner had held it.
	wantNone(t, s.DropLeases(t.Context(), "", 0)) // not this lease
	if again := takeLease(t, other, "b", ended); again.Number != third.Number {
		t.Errorf("number %d after a drop of others, not %d", again.Number, third.Number)
	}
	wantNone(t, s.DropLeases(t.Context(), "jobs", 0))
	wantNone(t, s.DropLeases(t.Context(), "job\x00", 2*-ended))
	kept := takeLease(t, other, "b", ended)
	if kept.Number != third.Number+1 {
		t.Errorf("number %d after drops of others, not %d", kept.Number, third.Number+1)
	}
	wantNone(t, s.DropLeases(t.Context(), "job\x00", -ended/2))
	if last := takeLease(t, other, "b", time.Hour); last.Number <= kept.Number+1 {
		t.Errorf("number %d after it was dropped, and %d before", last.Number, kept.Number)
	}
}

// Of many concurrent attempts to take a lease, one succeeds. The lease ends by the store's clock.
func leasesRace(t *testing.T, s, other store.Store) {
	stores := []store.Store{s, other}
	onlyOne(t, 16, store.ErrLeaseTaken, func(i int) error {
		_, err := stores[i%2].TakeLease(t.Context(), "race", fmt.Sprint("owner ", i), time.Hour)
		return err
	})
	l := takeLease(t, s, "a", 20*time.Millisecond)
	until := time.Now().Add(patience)
	for {
		taken, err := other.TakeLease(t.Context(), l.Name, "b", time.Hour)
		if err == nil {
			if taken.Number <= l.Number || taken.Ends.Sub(l.Ends) < time.Hour-20*time.Millisecond {
				t.Errorf("taken over: %+v after %+v", taken, l)
			}
			return
		}
		wantError(t, "before its end", err, store.ErrLeaseTaken)
		if time.Now().After(until) {
			t.Fatal("the lease does not end")
		}
	}
}

// Writes under a lease succeed only while its owner holds it.
func leasesFence(t *testing.T, s, other store.Store) {
	insts := startMany(t, s, 3)
	mine := takeLease(t, s, "a", time.Hour)
	wantNone(t, s.MoveCursor(t.Context(), store.Cursor{Name: "c"}, store.NoCursor, &mine))
	n := int64(0)
	write := func(l store.Lease, what string, want error) {
		t.Helper()
		c := Refuse(t, insts[0], "submit")
		c.Lease = &l
		a := newAnchor(n + 1)
		a.Lease = &l
		for name, err := range map[string]error{
			"a commit": s.Commit(t.Context(), c), "an anchor": s.AddAnchor(t.Context(), a),
			"a lesson": s.Commit(t.Context(), store.Commit{Lesson: newRefusal("a", "case", int(n)), Lease: &l}),
			"a cursor": s.MoveCursor(t.Context(), store.Cursor{Name: "c", Position: n + 1}, n, &l),
		} {
			if want == nil {
				wantNone(t, err)
			} else {
				wantError(t, what+": "+name, err, want)
			}
		}
		if want == nil {
			n++
			insts[0] = c.Next
		}
	}
	write(mine, "held", nil)
	if got, err := lastAnchor(t, s); err != nil || !reflect.DeepEqual(got, newAnchor(1)) {
		t.Errorf("an anchor under a lease: %+v, %v", got, err)
	}
	write(takeLease(t, other, "a", time.Hour), "renewed by the other process of the same owner", nil)
	wantNone(t, other.EndLease(t.Context(), mine))
	write(mine, "given back", store.ErrLeaseLost)
	theirs := takeLease(t, other, "b", time.Hour)
	write(mine, "taken over", store.ErrLeaseLost)
	write(theirs, "the new one's", nil)
	late := takeLease(t, other, "b", ended)
	write(late, "ended and not taken over", store.ErrLeaseLost)
	write(store.Lease{Name: "nobody's", Number: 1}, "never taken", store.ErrLeaseLost)
	write(store.Lease{Name: "nobody's"}, "never taken, without a number", store.ErrLeaseLost)
	wantRefusals(t, s, "a", noon, int(n))

	// A neighbour in the same transaction is not affected by the lease.
	errs := make([]error, len(insts))
	atOnce(len(insts), func(i int) {
		c := Refuse(t, insts[i], "submit")
		if i == 1 {
			c.Lease = &mine
		}
		errs[i] = s.Commit(t.Context(), c)
	})
	wantNone(t, errs[0])
	wantError(t, "a neighbour", errs[1], store.ErrLeaseLost)
	wantNone(t, errs[2])

	key := Refuse(t, loadInstance(t, s, insts[2].ID), "submit", WithKey("k"))
	mustCommit(t, s, key)
	key.Lease = &mine
	wantError(t, "a replay under a lost lease", s.Commit(t.Context(), key), store.ErrKeyTaken)
}

func listCursors(t *testing.T, s store.Store) (names []string, at []int64) {
	t.Helper()
	all, err := s.Cursors(t.Context())
	wantNone(t, err)
	for _, c := range all {
		names, at = append(names, c.Name), append(at, c.Position)
		if c.MadeAt.IsZero() || c.MovedAt.Before(c.MadeAt) || c.MadeAt.Year() < 2000 || c.MadeAt.Location() != time.UTC {
			t.Errorf("cursor %s was made %s and moved %s", c.Name, c.MadeAt, c.MovedAt)
		}
	}
	return names, at
}

func testCursors(t *testing.T, s, other store.Store) {
	move := func(db store.Store, name string, from, to int64) error {
		return db.MoveCursor(t.Context(), store.Cursor{Name: name, Position: to, Filter: fmt.Sprint("to ", to), MadeAt: Epoch, MovedAt: Epoch}, from, nil)
	}
	if names, _ := listCursors(t, s); len(names) != 0 {
		t.Errorf("an empty store has %q", names)
	}
	wantError(t, "one that is not there", move(s, "a", 0, 1), store.ErrConflict)
	wantError(t, "dropping it", s.DropCursor(t.Context(), "a"), store.ErrNotFound)
	wantNone(t, move(s, "é\x00\xff", store.NoCursor, 0))
	wantNone(t, move(other, "a", store.NoCursor, 7))
	wantError(t, "made again", move(s, "a", store.NoCursor, 7), store.ErrConflict)
	made, err := s.Cursors(t.Context())
	wantNone(t, err)
	wantNone(t, move(s, "a", 7, 9))
	wantError(t, "from its old position", move(other, "a", 7, 9), store.ErrConflict)
	wantNone(t, move(other, "a", 9, 3)) // back
	if names, at := listCursors(t, s); !slices.Equal(names, []string{"a", "é\x00\xff"}) || !slices.Equal(at, []int64{3, 0}) {
		t.Errorf("cursors %q at %d", names, at)
	}
	moved, err := s.Cursors(t.Context())
	wantNone(t, err)
	if got, was := moved[0], made[0]; got.Filter != "to 3" || !got.MadeAt.Equal(was.MadeAt) || got.MovedAt.Before(was.MovedAt) {
		t.Errorf("moved: %+v, made as %+v", got, was)
	}
	for what, c := range map[string]store.Cursor{"no name": {}, "a position below 0": {Name: "b", Position: -1}} {
		if err := s.MoveCursor(t.Context(), c, store.NoCursor, nil); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	wantNone(t, other.DropCursor(t.Context(), "a"))
	wantError(t, "dropped", s.DropCursor(t.Context(), "a"), store.ErrNotFound)
	wantError(t, "moved when it is gone", move(s, "a", 3, 4), store.ErrConflict)
	stores := []store.Store{s, other}
	for n := range int64(5) {
		onlyOne(t, 8, store.ErrConflict, func(i int) error { return move(stores[i%2], "a", n-1, n) })
	}
}

func newDataKey(instance string, number int) store.DataKey {
	sum := bytes.Repeat([]byte(hexOf(fmt.Sprint(instance, number))[:10]), 6)
	return store.DataKey{Instance: instance, Number: number, Wrapped: sum, Under: "kek-1", MadeAt: Epoch}
}

// destroyed returns a key as it is after its destruction.
func destroyed(k store.DataKey) store.DataKey {
	k.Wrapped, k.DestroyedAt = nil, Epoch.Add(time.Minute)
	return k
}

func wantDataKey(t *testing.T, s store.Store, number int, want store.DataKey) {
	t.Helper()
	got, err := s.DataKey(t.Context(), want.Instance, number)
	if wantNone(t, err); !reflect.DeepEqual(got, want) {
		t.Errorf("data key %d of %s: %+v, want %+v", number, want.Instance, got, want)
	}
}

func testDataKeys(t *testing.T, s, other store.Store) {
	one := newDataKey(ID(1), 1)
	_, err := s.DataKey(t.Context(), ID(1), 0)
	wantError(t, "the newest of none", err, store.ErrNotFound)
	wantError(t, "in place of none", s.PutDataKey(t.Context(), one, &one), store.ErrConflict)
	wantError(t, "the second first", s.PutDataKey(t.Context(), newDataKey(ID(1), 2), nil), store.ErrConflict)
	given := one
	given.Wrapped = bytes.Clone(one.Wrapped)
	wantNone(t, s.PutDataKey(t.Context(), given, nil))
	clear(given.Wrapped) // it is not shared
	wantDataKey(t, other, 0, one)
	wantError(t, "the same again", other.PutDataKey(t.Context(), one, nil), store.ErrConflict)
	two := newDataKey(ID(1), 2)
	wantNone(t, other.PutDataKey(t.Context(), two, nil))
	wantDataKey(t, s, 0, two)
	wantDataKey(t, s, 1, one)
	_, err = s.DataKey(t.Context(), ID(1), 3)
	wantError(t, "the third", err, store.ErrNotFound)

	rewrapped := one
	rewrapped.Wrapped, rewrapped.Under = []byte("another, and longer than the first: "+string(one.Wrapped)), "kek-2"
	for what, stale := range map[string]func(k *store.DataKey){
		"sealed otherwise": func(k *store.DataKey) { k.Wrapped = []byte("x") }, "under another": func(k *store.DataKey) { k.Under = "" },
		"made at another time": func(k *store.DataKey) { k.MadeAt = Epoch.Add(1) },
		"destroyed":            func(k *store.DataKey) { *k = destroyed(*k) },
	} {
		was := one
		stale(&was)
		wantError(t, what, s.PutDataKey(t.Context(), rewrapped, &was), store.ErrConflict)
	}
	wantNone(t, s.PutDataKey(t.Context(), rewrapped, &one))
	wantDataKey(t, other, 1, rewrapped)

	gone := destroyed(rewrapped)
	wantError(t, "destroyed as it was", s.PutDataKey(t.Context(), destroyed(one), &one), store.ErrConflict)
	wantNone(t, other.PutDataKey(t.Context(), gone, &rewrapped))
	wantNone(t, s.PutDataKey(t.Context(), gone, &gone)) // once more
	wantDataKey(t, s, 1, gone)
	wantDataKey(t, s, 0, two)
	wantError(t, "brought back", s.PutDataKey(t.Context(), rewrapped, &gone), store.ErrConflict)
	wantError(t, "brought back, not knowing", other.PutDataKey(t.Context(), one, &rewrapped), store.ErrConflict)
	wantError(t, "made anew", s.PutDataKey(t.Context(), one, nil), store.ErrConflict)
	wantDataKey(t, s, 1, gone)

	for what, k := range map[string]store.DataKey{
		"no instance": {Number: 1, Wrapped: []byte("x")}, "number 0": {Instance: "x", Wrapped: []byte("x")},
		"no key": {Instance: "x", Number: 1}, "a destroyed one with its key": {Instance: "x", Number: 1, Wrapped: []byte("x"), DestroyedAt: Epoch},
	} {
		if err := s.PutDataKey(t.Context(), k, nil); err == nil {
			t.Errorf("%s is kept", what)
		}
	}
	if err := s.PutDataKey(t.Context(), newDataKey(ID(2), 1), &two); err == nil {
		t.Error("a key takes the place of another instance's")
	}
}

func listDataKeys(t *testing.T, s store.Store, instance string, number int) (ids []string) {
	t.Helper()
	for _, k := range collect(t, s.DataKeys(t.Context(), instance, number)) {
		ids = append(ids, fmt.Sprint(k.Instance, " ", k.Number))
	}
	return ids
}

func dataKeysInOrder(t *testing.T, _ Driver, s store.Store) {
	var want []string
	for i := range 40 {
		for n := range 1 + i%3 {
			wantNone(t, s.PutDataKey(t.Context(), newDataKey(ID(40-i), n+1), nil))
			want = append(want, fmt.Sprint(ID(40-i), " ", n+1))
		}
	}
	slices.Sort(want)
	if got := listDataKeys(t, s, "", 0); !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for i := range want {
		var id string
		var n int
		if _, err := fmt.Sscan(want[i], &id, &n); err != nil {
			t.Fatal(err)
		}
		if got := listDataKeys(t, s, id, n); !slices.Equal(got, want[i+1:]) {
			t.Errorf("after %s: %q", want[i], got)
		}
	}
	onlyOne(t, 8, store.ErrConflict, func(i int) error {
		k := newDataKey(ID(50), 1)
		k.Under = fmt.Sprint("kek-", i)
		return s.PutDataKey(t.Context(), k, nil)
	})
}

func sharedReopened(t *testing.T, s store.Store) func(store.Store) {
	l := takeLease(t, s, "a", time.Hour)
	wantNone(t, s.MoveCursor(t.Context(), store.Cursor{Name: "c", Position: 5}, store.NoCursor, &l))
	k := newDataKey(ID(1), 1)
	wantNone(t, s.PutDataKey(t.Context(), k, nil))
	wantNone(t, s.PutDataKey(t.Context(), destroyed(k), &k))
	two := newDataKey(ID(1), 2)
	wantNone(t, s.PutDataKey(t.Context(), two, nil))
	return func(s store.Store) {
		_, err := s.TakeLease(t.Context(), l.Name, "b", time.Hour)
		wantError(t, "the lease of a process that ended", err, store.ErrLeaseTaken)
		if again := takeLease(t, s, "a", time.Hour); again.Number != l.Number {
			t.Errorf("number %d after %d", again.Number, l.Number)
		}
		if names, at := listCursors(t, s); !slices.Equal(names, []string{"c"}) || !slices.Equal(at, []int64{5}) {
			t.Errorf("cursors %q at %d", names, at)
		}
		wantDataKey(t, s, 1, destroyed(k))
		wantDataKey(t, s, 0, two)
	}
}

// Once a lease was returned, no pending write that names it is committed.
func fenceUnderLoad(t *testing.T, s, other store.Store) {
	const writers, rounds = 4, 5
	insts := startMany(t, s, writers)
	for range rounds {
		l := takeLease(t, s, "a", time.Hour)
		begun := make(chan struct{}, writers)
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				for n := 0; ; n++ {
					c := Refuse(t, insts[i], "submit")
					c.Lease = &l
					err := s.Commit(t.Context(), c)
					if n == 3 || err != nil {
						begun <- struct{}{}
					}
					if err != nil {
						wantError(t, "under the lease", err, store.ErrLeaseLost)
						return
					}
					insts[i] = c.Next
				}
			})
		}
		for range writers {
			<-begun
		}
		wantNone(t, other.EndLease(t.Context(), l))
		last, err := other.LastPosition(t.Context())
		wantNone(t, err)
		group.Wait()
		if now, err := s.LastPosition(t.Context()); now != last || err != nil {
			t.Errorf("%d events were committed after the lease was given back (%v)", now-last, err)
		}
	}
}

// If two processes ask the same question or end the same review, only one is recorded. The lessons of both count
// together.
func questionsOfTwo(t *testing.T, s, other store.Store) {
	const each = 8
	stores := []store.Store{s, other}
	for round := range 4 {
		id := ID(round)
		inst := mustCommit(t, s, Start(t, id, `{}`))
		guard := fmt.Sprint("guard ", round)
		asked := make([]store.Commit, 2*each)
		for i := range asked {
			asked[i] = Escalate(t, inst, "submit", ReviewID(100*round+i), WithKey(guard))
			asked[i].Reviews = []store.Review{Review(100*round+i, inst)}
		}
		winner := onlyOne(t, len(asked), store.ErrKeyTaken, func(i int) error { return stores[i%2].Commit(t.Context(), asked[i]) })
		for _, db := range stores {
			if open := listReviews(t, db, store.ReviewQuery{Instance: id}); len(open) != 1 || open[0].ID != ReviewID(100*round+winner) {
				t.Errorf("round %d: %d reviews are open", round, len(open))
			}
		}
		parked := asked[winner].Next
		ended := make([]store.Commit, 2*each)
		for i := range ended {
			by := fmt.Sprint("person:", i)
			row := asked[winner].Reviews[0]
			row.Status, row.By, row.Data = record.ReviewExpired, by, nil
			ended[i] = EndReview(t, parked, "submit", &record.Review{ID: row.ID, Status: record.ReviewExpired, By: by}, By(by))
			ended[i].Reviews = []store.Review{row}
		}
		winner = onlyOne(t, len(ended), store.ErrConflict, func(i int) error { return stores[i%2].Commit(t.Context(), ended[i]) })
		requireVerified(t, other, id)
		wantReview(t, other, ended[winner].Reviews[0])
		if e := listEvents(t, other, store.EventQuery{Instance: id}); len(e) != 3 || e[2].Principal != fmt.Sprint("person:", winner) {
			t.Errorf("round %d: %d events, the last by %s", round, len(e), e[len(e)-1].Principal)
		}
		atOnce(2*each, func(i int) {
			if err := stores[i%2].Commit(t.Context(), store.Commit{Lesson: newRefusal(guard, fmt.Sprint("case ", i), i)}); err != nil {
				t.Errorf("a lesson: %v", err)
			}
		})
		for _, db := range stores {
			wantRefusals(t, db, guard, noon, 2*each)
		}
	}
}
