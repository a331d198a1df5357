//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// atOnce starts n goroutines together and waits for them.
func atOnce(n int, do func(i int)) {
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { <-gate; do(i) })
	}
	close(gate)
	wg.Wait()
}

func oneWinner(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	for range 10 {
		commits := make([]store.Commit, 16)
		for i := range commits {
			commits[i] = Advance(t, inst, "reviewing", fmt.Sprintf(`{"by":%d}`, i))
		}
		winner := onlyOne(t, len(commits), store.ErrConflict, func(i int) error { return s.Commit(t.Context(), commits[i]) })
		inst = commits[winner].Next
		requireSame(t, "the winner's", loadInstance(t, s, ID(1)), inst)
	}
	requireVerified(t, s, ID(1))
}

// commitContended loads, seals and commits until n commits of this worker succeeded.
func commitContended(t *testing.T, s store.Store, id string, n int) (conflicts int) {
	for won := 0; won < n; {
		inst, err := s.Load(t.Context(), id)
		if err != nil {
			t.Errorf("load: %v", err)
			return conflicts
		}
		switch err := s.Commit(t.Context(), Advance(t, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, won))); {
		case err == nil:
			won++
		case errors.Is(err, store.ErrConflict):
			conflicts++
		default:
			t.Errorf("commit: %v", err)
			return conflicts
		}
	}
	return conflicts
}

func testContention(t *testing.T, _ Driver, s store.Store) {
	mustCommit(t, s, Start(t, ID(1), `{}`))
	const workers, each = 8, 10
	atOnce(workers, func(int) { commitContended(t, s, ID(1), each) })
	if inst := requireVerified(t, s, ID(1)); inst.Seq != 1+workers*each {
		t.Errorf("the instance is at event %d, want %d", inst.Seq, 1+workers*each)
	}
}

func testParallel(t *testing.T, _ Driver, s store.Store) {
	const workers, each = 16, 10
	var conflicts atomic.Int64
	atOnce(workers, func(i int) {
		if err := s.Commit(t.Context(), Start(t, ID(i), `{}`)); err != nil {
			t.Errorf("start %d: %v", i, err)
			return
		}
		conflicts.Add(int64(commitContended(t, s, ID(i), each)))
	})
	if n := conflicts.Load(); n != 0 {
		t.Errorf("%d conflicts between different instances", n)
	}
	for i := range workers {
		if inst := requireVerified(t, s, ID(i)); inst.Seq != 1+each {
			t.Errorf("instance %d is at event %d, want %d", i, inst.Seq, 1+each)
		}
	}
}

func testBeside(t *testing.T, d Driver, s store.Store) {
	other := d.Beside(t, s)
	defer closeStore(t, other)
	inst := mustCommit(t, s, Start(t, ID(1), `{}`, WithKey("k")))
	requireSame(t, "seen by the other", loadInstance(t, other, ID(1)), inst)
	wantError(t, "the same key by the other", other.Commit(t.Context(), Refuse(t, inst, "submit", WithKey("k"))), store.ErrKeyTaken)
	inst = mustCommit(t, other, Advance(t, inst, "reviewing", `{}`))
	stale := Refuse(t, record.Instance{
		ID: inst.ID, Seq: 1, Revision: 1, Head: inst.Head, State: "draft", Status: record.Running,
		Workflow: inst.Workflow, Version: inst.Version, DefinitionHash: inst.DefinitionHash,
	}, "submit")
	wantError(t, "the first, not knowing", s.Commit(t.Context(), stale), store.ErrConflict)

	const workers, each = 4, 10
	stores := []store.Store{s, other}
	atOnce(2*workers, func(i int) { commitContended(t, stores[i%2], ID(1), each) })
	for _, db := range stores {
		if got := requireVerified(t, db, ID(1)); got.Seq != inst.Seq+2*workers*each {
			t.Errorf("the instance is at event %d, want %d", got.Seq, inst.Seq+2*workers*each)
		}
	}
}

func keyTaken(t *testing.T, _ Driver, s store.Store) {
	c := Start(t, ID(1), `{}`, WithKey("start"))
	inst := mustCommit(t, s, c)
	again := Start(t, ID(2), `{}`, WithKey("start"))
	wantError(t, "a second start with the key", s.Commit(t.Context(), again), store.ErrKeyTaken)
	_, err := s.Load(t.Context(), ID(2))
	wantError(t, "the second instance", err, store.ErrNotFound)

	move := Advance(t, inst, "reviewing", `{}`, WithKey("move"))
	inst = mustCommit(t, s, move)
	wantError(t, "the same commit again", s.Commit(t.Context(), move), store.ErrKeyTaken)
	for range 3 {
		inst = mustCommit(t, s, Refuse(t, inst, "submit"))
	}
	wantError(t, "the same commit after later events", s.Commit(t.Context(), move), store.ErrKeyTaken)
	wantError(t, "the key with a fresh event", s.Commit(t.Context(), Refuse(t, inst, "submit", WithKey("move"))), store.ErrKeyTaken)
	wantError(t, "the start again", s.Commit(t.Context(), c), store.ErrKeyTaken)
	requireSame(t, "afterwards", requireVerified(t, s, ID(1)), inst)

	e, err := s.ByKey(t.Context(), move.Events[0].Key.Scope)
	wantNone(t, err)
	sameEvent(t, e, move.Events[0])
	if e.Key == nil || e.Key.Request != move.Events[0].Key.Request {
		t.Errorf("the request of the key: %+v", e.Key)
	}
}

func keyConcurrentAdvances(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	c := Advance(t, inst, "reviewing", `{}`, WithKey("k"))
	onlyOne(t, 16, store.ErrKeyTaken, func(int) error { return s.Commit(t.Context(), c) })
	requireSame(t, "one event", requireVerified(t, s, ID(1)), c.Next)
}

func keyConcurrentStarts(t *testing.T, _ Driver, s store.Store) {
	const n = 16
	commits := make([]store.Commit, n)
	for i := range commits {
		commits[i] = Start(t, ID(i), `{}`, WithKey("k"))
	}
	winner := onlyOne(t, n, store.ErrKeyTaken, func(i int) error { return s.Commit(t.Context(), commits[i]) })
	for i := range n {
		if _, err := s.Load(t.Context(), ID(i)); (err == nil) != (i == winner) {
			t.Errorf("instance %d of winner %d: %v", i, winner, err)
		}
	}
	e, err := s.ByKey(t.Context(), commits[0].Events[0].Key.Scope)
	if err != nil || e.Instance != ID(winner) {
		t.Errorf("the key answers with %s, %v, want %s", e.Instance, err, ID(winner))
	}
}

// onlyOne calls commit n times concurrently and returns which call succeeded. Exactly one must; the others must fail
// with lost.
func onlyOne(t *testing.T, n int, lost error, commit func(i int) error) (winner int) {
	t.Helper()
	errs := make([]error, n)
	atOnce(n, func(i int) { errs[i] = commit(i) })
	winner = -1
	for i, err := range errs {
		switch {
		case err != nil:
			wantError(t, "a loser", err, lost)
		case winner >= 0:
			t.Fatalf("both %d and %d won", winner, i)
		default:
			winner = i
		}
	}
	if winner < 0 {
		t.Fatal("nobody won")
	}
	return winner
}

func keyReopened(t *testing.T, s store.Store) func(store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	c := Advance(t, inst, "reviewing", `{}`, WithKey("k"))
	inst = mustCommit(t, s, c)
	return func(s store.Store) {
		wantError(t, "the same commit", s.Commit(t.Context(), c), store.ErrKeyTaken)
		wantError(t, "the key with a fresh event", s.Commit(t.Context(), Refuse(t, inst, "x", WithKey("k"))), store.ErrKeyTaken)
		e, err := s.ByKey(t.Context(), c.Events[0].Key.Scope)
		wantNone(t, err)
		sameEvent(t, e, c.Events[0])
	}
}
