//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// newAnchor returns the n-th of a series of distinct anchors.
func newAnchor(n int64) store.Anchor {
	return store.Anchor{
		Number: n, At: Epoch.Add(time.Duration(n) * time.Minute),
		Note: fmt.Sprintf("log\n%d\n\n— zoë x\n", n), Heads: bytes.Repeat([]byte{'n', 0, '\n'}, 100),
	}
}

func lastAnchor(t *testing.T, s store.Store) (store.Anchor, error) {
	return store.First(s.Anchors(t.Context(), store.LastAnchor), "an anchor")
}

func testAnchors(t *testing.T, _ Driver, s store.Store) {
	_, err := lastAnchor(t, s)
	wantError(t, "the last of none", err, store.ErrNotFound)
	wantError(t, "the second first", s.AddAnchor(t.Context(), newAnchor(2)), store.ErrConflict)
	for n := range int64(5) {
		given := newAnchor(n + 1)
		wantNone(t, s.AddAnchor(t.Context(), given))
		clear(given.Heads) // it is not shared
		wantError(t, "the same again", s.AddAnchor(t.Context(), newAnchor(n+1)), store.ErrConflict)
	}
	wantError(t, "a gap", s.AddAnchor(t.Context(), newAnchor(7)), store.ErrConflict)
	for _, after := range []int64{0, 3, 5, 9} {
		next := after + 1
		for got, err := range s.Anchors(t.Context(), after) {
			if err != nil || !reflect.DeepEqual(got, newAnchor(next)) {
				t.Fatalf("above %d: got %+v, %v; want anchor %d", after, got, err, next)
			}
			next++
			clear(got.Heads)
		}
		if next != max(6, after+1) {
			t.Errorf("above %d: ended before %d", after, next)
		}
	}
	for _, err := range s.Anchors(t.Context(), 0) {
		if err != nil {
			t.Error(err)
		}
		break // abandoned
	}
	if last, err := lastAnchor(t, s); err != nil || !reflect.DeepEqual(last, newAnchor(5)) {
		t.Errorf("the last: %+v, %v", last, err)
	}
}

func anchorsRace(t *testing.T, _ Driver, s store.Store) {
	for n := range int64(5) {
		onlyOne(t, 8, store.ErrConflict, func(int) error { return s.AddAnchor(t.Context(), newAnchor(n+1)) })
	}
}

func anchorsReopened(t *testing.T, s store.Store) func(store.Store) {
	wantNone(t, s.AddAnchor(t.Context(), newAnchor(1)))
	return func(s store.Store) {
		if got, err := lastAnchor(t, s); err != nil || !reflect.DeepEqual(got, newAnchor(1)) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

func testHeads(t *testing.T, _ Driver, s store.Store) {
	at := func() int64 {
		n, err := s.LastPosition(t.Context())
		wantNone(t, err)
		return n
	}
	headOf := func(i record.Instance) record.Instance {
		return record.Instance{ID: i.ID, Seq: i.Seq, Head: i.Head}
	}
	list := func(above int64) []record.Instance {
		return listInstances(t, s, store.InstanceQuery{MovedAfter: above, Heads: true})
	}
	same := func(got, want []record.Instance) bool { return len(got)+len(want) == 0 || reflect.DeepEqual(got, want) }
	if n, all := at(), list(0); n != 0 || len(all) != 0 {
		t.Errorf("an empty store: %d, %v", n, all)
	}
	var want []record.Instance
	for n := range 5 {
		want = append(want, headOf(growInstance(t, s, ID(5-n), n)))
	}
	if got := list(0); !same(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	before := at()
	if got := list(before); before == 0 || len(got) != 0 {
		t.Errorf("nothing has moved since %d: %v", before, got)
	}
	moved := mustCommit(t, s, Refuse(t, loadInstance(t, s, ID(2)), "submit"))
	moved = mustCommit(t, s, Refuse(t, moved, "submit"))
	added := mustCommit(t, s, Start(t, ID(9), `{}`))
	if got := list(before); !same(got, []record.Instance{headOf(added), headOf(moved)}) {
		t.Errorf("above %d: %v", before, got)
	}
	if got := listInstances(t, s, store.InstanceQuery{MovedAfter: before, BeforeID: ID(9)}); !same(got, []record.Instance{moved}) {
		t.Errorf("above %d, whole: %v", before, got)
	}
	if at() <= before {
		t.Errorf("the position stayed at %d", before)
	}
}

// A removal without the key and the first anchor may overtake each other. One of them must then fail, so that no
// anchor covers events that were removed unsigned after it had seen them.
func anchorsAndRemovals(t *testing.T, _ Driver, s store.Store) {
	inst, at := growLong(t, s, ID(1))
	seen, err := s.LastPosition(t.Context())
	wantNone(t, err)
	c := Truncate(t, inst, at[1])
	c.Unanchored = true
	mustCommit(t, s, c)
	first := newAnchor(1)
	first.Seen = seen
	wantError(t, "an anchor over removed events", s.AddAnchor(t.Context(), first), store.ErrConflict)
	first.Seen, err = s.LastPosition(t.Context())
	wantNone(t, err)
	wantNone(t, s.AddAnchor(t.Context(), first))
	if last, err := lastAnchor(t, s); err != nil || !reflect.DeepEqual(last, newAnchor(1)) {
		t.Errorf("kept as %+v, %v", last, err)
	}
	again := Truncate(t, c.Next, at[4])
	again.Unanchored = true
	wantError(t, "a removal after an anchor", s.Commit(t.Context(), again), store.ErrConflict)
	requireSame(t, "the remaining instance", loadInstance(t, s, inst.ID), c.Next)
	again.Unanchored = false
	mustCommit(t, s, again)
	next := newAnchor(2)
	next.Seen = seen
	if err := s.AddAnchor(t.Context(), next); err != nil {
		t.Errorf("the second anchor: %v", err)
	}
}
