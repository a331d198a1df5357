//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

func newDeadLetter(cursor string, position int64) store.DeadLetter {
	return store.DeadLetter{Cursor: cursor, Position: position, Instance: ID(1), Seq: 3, Tries: 10, Cause: "the answer was \x00\xff", At: Epoch.Add(time.Duration(position))}
}

func wantDeadLetters(t *testing.T, s store.Store, cursor string, want ...store.DeadLetter) {
	t.Helper()
	var got []store.DeadLetter
	for l, err := range s.DeadLetters(t.Context(), cursor) {
		wantNone(t, err)
		got = append(got, l)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("dead letters of %q:\n got %+v\nwant %+v", cursor, got, want)
	}
}

func testDeadLetters(t *testing.T, s, other store.Store) {
	wantDeadLetters(t, s, "")
	a9, a10, b := newDeadLetter("a", 9), newDeadLetter("a", 10), newDeadLetter("b\x00\xff", 2)
	for _, l := range []store.DeadLetter{a10, b, a9} {
		wantNone(t, s.AddDeadLetter(t.Context(), l, nil))
	}
	wantDeadLetters(t, other, "", a9, a10, b)
	wantDeadLetters(t, other, "a", a9, a10)
	wantDeadLetters(t, other, "b")
	a9.Tries, a9.Cause = 20, ""
	wantNone(t, other.AddDeadLetter(t.Context(), a9, nil)) // replaces the previous letter
	wantNone(t, s.DropDeadLetter(t.Context(), "a", 10))
	wantError(t, "dropped", other.DropDeadLetter(t.Context(), "a", 10), store.ErrNotFound)
	wantError(t, "of another cursor", other.DropDeadLetter(t.Context(), "b", 9), store.ErrNotFound)
	wantDeadLetters(t, s, "", a9, b)
	for what, l := range map[string]store.DeadLetter{"no cursor": {Position: 1, Instance: "i"}, "no position": {Cursor: "a", Instance: "i"}, "no instance": {Cursor: "a", Position: 1}} {
		if err := s.AddDeadLetter(t.Context(), l, nil); err == nil {
			t.Errorf("one with %s is taken", what)
		}
	}
	lost := takeLease(t, s, "a", ended)
	wantError(t, "under a lease that ended", s.AddDeadLetter(t.Context(), a10, &lost), store.ErrLeaseLost)
	held := takeLease(t, s, "a", time.Hour)
	wantNone(t, s.AddDeadLetter(t.Context(), a10, &held))
	wantDeadLetters(t, s, "a", a9, a10)
}

// More letters than fit in a driver's page.
func manyDeadLetters(t *testing.T, _ Driver, s store.Store) {
	var want []store.DeadLetter
	for cursor := range 3 {
		for position := int64(1); position <= 700; position++ {
			want = append(want, newDeadLetter(fmt.Sprint("c", cursor), position))
		}
	}
	errs := make([]error, len(want))
	atOnce(len(want), func(i int) { errs[i] = s.AddDeadLetter(t.Context(), want[i], nil) })
	wantNone(t, errors.Join(errs...))
	wantDeadLetters(t, s, "", want...)
	wantDeadLetters(t, s, "c1", want[700:1400]...)
}

func deadLettersReopened(t *testing.T, s store.Store) func(store.Store) {
	l := newDeadLetter("a", 1)
	wantNone(t, s.AddDeadLetter(t.Context(), l, nil))
	return func(s store.Store) { wantDeadLetters(t, s, "", l) }
}
