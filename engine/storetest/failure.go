//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// patience limits the wait for something that should happen soon; it is far longer than necessary.
const patience = 30 * time.Second

func failedWrite(t *testing.T, d Driver, s store.Store) {
	d.Poison(t, s, "poison")
	inst := growInstance(t, s, ID(1), 2)
	bad := Refuse(t, inst, "poison", WithKey("k"))
	bad.Snapshot = true
	if err := s.Commit(t.Context(), bad); err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrKeyTaken) {
		t.Fatalf("a poisoned write: %v", err)
	}
	// A poisoned second event must prevent the first one, too.
	first := Advance(t, inst, "reviewing", `{"x":1}`, WithKey("k2"))
	second := Refuse(t, first.Next, "poison")
	if err := s.Commit(t.Context(), store.Commit{
		Expect: inst.Seq, Events: []record.Event{first.Events[0], second.Events[0]}, Next: second.Next,
	}); err == nil {
		t.Fatal("a commit with a poisoned event went through")
	}
	start := Start(t, ID(2), `{}`, func(e *record.Event) { e.Action = "poison" })
	if err := s.Commit(t.Context(), start); err == nil {
		t.Fatal("a poisoned start went through")
	}
	_, err := s.Load(t.Context(), ID(2))
	wantError(t, "the poisoned start", err, store.ErrNotFound)
	for _, c := range []store.Commit{bad, first} {
		_, err := s.ByKey(t.Context(), c.Events[0].Key.Scope)
		wantError(t, "the key of a failed write", err, store.ErrNotFound)
	}
	_, err = s.Snapshot(t.Context(), ID(1), 100)
	wantError(t, "the snapshot of a failed write", err, store.ErrNotFound)
	requireSame(t, "afterwards", requireVerified(t, s, ID(1)), inst)
	mustCommit(t, s, Refuse(t, inst, "submit", WithKey("k")))
	requireVerified(t, s, ID(1))
}

func testNeighbours(t *testing.T, d Driver, s store.Store) {
	d.Poison(t, s, "poison")
	const n = 24
	insts := startMany(t, s, n)
	commits := make([]store.Commit, n)
	for i, inst := range insts {
		switch {
		case i%6 == 1:
			commits[i] = Refuse(t, inst, "poison")
		case i%6 == 3: // in conflict: a fork
			inst.Head = hexOf("another head")
			commits[i] = Refuse(t, inst, "submit")
		default:
			commits[i] = Advance(t, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, i))
		}
		commits[i].Reviews = []store.Review{Review(i, insts[i])}
	}
	release := func() {}
	if d.Stall != nil {
		release = d.Stall(t, s)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range commits {
		wg.Go(func() { errs[i] = s.Commit(t.Context(), commits[i]) })
	}
	release()
	wg.Wait()
	for i, err := range errs {
		want := insts[i]
		switch {
		case i%6 == 1:
			if err == nil || errors.Is(err, store.ErrConflict) {
				t.Errorf("poisoned member %d: %v", i, err)
			}
		case i%6 == 3:
			wantError(t, "a conflicting member", err, store.ErrConflict)
		default:
			want = commits[i].Next
			if err != nil {
				t.Errorf("good member %d: %v", i, err)
			}
		}
		requireSame(t, fmt.Sprintf("member %d", i), requireVerified(t, s, ID(i)), want)
		if err != nil {
			noReview(t, s, ReviewID(i))
		} else {
			wantReview(t, s, commits[i].Reviews[0])
		}
	}
}

// readErrors returns the error of every read of a store. A list must yield its error once, and no rows.
func readErrors(ctx context.Context, s store.Store) map[string]error {
	errs := map[string]error{}
	_, errs["load"] = s.Load(ctx, ID(1))
	_, errs["by key"] = s.ByKey(ctx, hexOf("k"))
	_, errs["snapshot"] = s.Snapshot(ctx, ID(1), 1)
	_, errs["definition"] = s.Definition(ctx, "doc", 0)
	_, errs["definitions"] = s.Definitions(ctx)
	_, _, errs["rules"] = s.Rules(ctx, 0)
	_, errs["judge configs"] = s.JudgeConfigs(ctx, "doc")
	_, errs["last position"] = s.LastPosition(ctx)
	_, _, errs["refusals"] = s.Refusals(ctx, "a", "", noon)
	_, errs["review"] = store.FindReview(ctx, s, ReviewID(1))
	_, errs["cursors"] = s.Cursors(ctx)
	_, errs["data key"] = s.DataKey(ctx, ID(1), 0)
	errs["dead letters"] = onlyError(s.DeadLetters(ctx, ""))
	errs["data keys"] = onlyError(s.DataKeys(ctx, "", 0))
	errs["events"] = onlyError(s.Events(ctx, store.EventQuery{Instance: ID(1)}))
	errs["events after"] = onlyError(s.EventsAfter(ctx, store.TailQuery{}))
	errs["instances"] = onlyError(s.Instances(ctx, store.InstanceQuery{}))
	errs["decisions"] = onlyError(s.Decisions(ctx, store.DecisionQuery{}))
	errs["reviews"] = onlyError(s.Reviews(ctx, store.ReviewQuery{}))
	errs["anchors"] = onlyError(s.Anchors(ctx, 0))
	return errs
}

func onlyError[T any](list iter.Seq2[T, error]) (only error) {
	n := 0
	for _, err := range list {
		only = err
		n++
	}
	if n != 1 {
		return fmt.Errorf("listed %d rows and errors, want one error, got %v", n, only) //nolint:errorlint // must not be taken for that error
	}
	return only
}

func wantErrors(t testing.TB, errs map[string]error, want error) {
	t.Helper()
	for what, err := range errs {
		wantError(t, what, err, want)
	}
}

func testCancelled(t *testing.T, _ Driver, s store.Store) {
	inst := growInstance(t, s, ID(1), 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := Refuse(t, inst, "submit", WithKey("k"))
	wantError(t, "commit", s.Commit(ctx, c), context.Canceled)
	wantError(t, "add a definition", s.AddRule(ctx, ofDefinition(newDefinition("doc", 1))), context.Canceled)
	wantErrors(t, readErrors(ctx, s), context.Canceled)
	requireSame(t, "afterwards", requireVerified(t, s, ID(1)), inst)
	mustCommit(t, s, c)
}

func cancelledInQueue(t *testing.T, d Driver, s store.Store) {
	insts := startMany(t, s, 8)
	release := d.Stall(t, s)
	released := sync.OnceFunc(release)
	defer released()
	waiting := make(chan error, 2)
	go func() { waiting <- s.Commit(t.Context(), Start(t, ID(101), `{}`)) }()
	if d.AwaitStalled != nil { // later writes wait in line after it, and can be withdrawn
		d.AwaitStalled(t, s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, len(insts))
	for _, inst := range insts {
		go func() { errs <- s.Commit(ctx, Refuse(t, inst, "cancelled", WithKey("c"+inst.ID))) }()
	}
	go func() { waiting <- s.Commit(t.Context(), Start(t, ID(100), `{}`)) }() // a neighbour that is not cancelled
	cancel()
	for range insts { // cancelled writes must not wait for the stalled one
		select {
		case err := <-errs:
			if !isContextEnd(err) {
				t.Fatalf("a cancelled write: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("a cancelled write still waits")
		}
	}
	released()
	for range 2 {
		if err := <-waiting; err != nil {
			t.Fatalf("a neighbour: %v", err)
		}
	}
	// A caller that received the cancellation must not find the write stored.
	for _, inst := range insts {
		if got := requireVerified(t, s, inst.ID); got.Seq != inst.Seq {
			t.Errorf("%s was written although its caller got the cancellation", inst.ID)
		}
		mustCommit(t, s, Refuse(t, inst, "again", WithKey("c"+inst.ID)))
	}
}

func testReopen(t *testing.T, d Driver, s store.Store) {
	inst := growInstance(t, s, ID(1), 20)
	inst = mustCommit(t, s, CheckpointOf(t, inst))
	wantNone(t, s.AddRule(t.Context(), ofDefinition(newDefinition("doc", 1))))
	wantNone(t, s.AddRule(t.Context(), ofConfig(judgeConfig("doc", 1))))
	before := listEvents(t, s, store.EventQuery{Instance: ID(1)})
	wantNone(t, s.Close())
	for range 2 {
		s = d.Reopen(t, s)
		requireSame(t, "after reopening", requireVerified(t, s, ID(1)), inst)
		after := listEvents(t, s, store.EventQuery{Instance: ID(1)})
		if !slices.EqualFunc(before, after, func(a, b record.Event) bool { return a.Hash == b.Hash && string(a.Body()) == string(b.Body()) }) {
			t.Error("the history changed")
		}
		if snap, err := s.Snapshot(t.Context(), ID(1), inst.Revision); err != nil {
			t.Error(err)
		} else {
			requireSame(t, "the snapshot", snap, inst)
		}
		sameDefinition(t, s, 0, newDefinition("doc", 1))
		if all, err := s.JudgeConfigs(t.Context(), "doc"); err != nil || len(all) != 1 {
			t.Errorf("judge configs: %v, %v", all, err)
		}
		wantNone(t, s.Close())
	}
	s = d.Reopen(t, s)
	defer closeStore(t, s)
	mustCommit(t, s, Refuse(t, inst, "submit"))
	requireVerified(t, s, ID(1))
}

func testClosing(t *testing.T, _ Driver, s store.Store) {
	inst := growInstance(t, s, ID(1), 1)
	for range 2 {
		wantNone(t, s.Close())
	}
	ctx := t.Context()
	wantError(t, "commit", s.Commit(ctx, Refuse(t, inst, "submit")), store.ErrClosed)
	wantError(t, "add a definition", s.AddRule(ctx, ofDefinition(newDefinition("doc", 1))), store.ErrClosed)
	wantError(t, "add a judge config", s.AddRule(ctx, ofConfig(judgeConfig("doc", 1))), store.ErrClosed)
	wantErrors(t, readErrors(ctx, s), store.ErrClosed)
}

// testDraining closes the store during reads and writes. Each write must either fail with ErrClosed or be stored.
func testDraining(t *testing.T, d Driver, s store.Store) {
	const workers = 16
	insts := startMany(t, s, workers)
	var wg sync.WaitGroup
	var once sync.Once
	going := make(chan struct{})
	for i := range insts {
		wg.Go(func() {
			for {
				c := Refuse(t, insts[i], "submit")
				err := s.Commit(t.Context(), c)
				if err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Errorf("while closing: %v", err)
					}
					return
				}
				insts[i] = c.Next
				once.Do(func() { close(going) })
			}
		})
		wg.Go(func() {
			for {
				if _, err := s.Load(t.Context(), ID(i)); err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Errorf("a read while closing: %v", err)
					}
					return
				}
			}
		})
	}
	<-going
	atOnce(2, func(int) { // two concurrent calls
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	wg.Wait()
	if d.Reopen == nil {
		return
	}
	s = d.Reopen(t, s)
	defer closeStore(t, s)
	for _, inst := range insts {
		requireSame(t, "the acknowledged write", requireVerified(t, s, inst.ID), inst)
	}
}
