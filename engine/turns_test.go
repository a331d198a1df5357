package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
)

// turns returns a bench whose workflow asks a model, and an instance of it.
func turns(t *testing.T) (*bench, string) {
	t.Helper()
	b := newBench(t)
	b.define(operator, judgedFlow)
	return b, b.start(agent, "judged", "").ID
}

// Of several concurrent callers with the same request, one moves the instance; the others get a conflict.
func TestWaitingForAMove(t *testing.T) {
	t.Parallel()
	j := newJudged(t, memory.New(), "m")
	j.model.approve.Store(true)
	id := j.start()
	const callers = 8
	var moved, told atomic.Int32
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			got, err := j.Advance(context.Background(), agent, closing(id, "Replaced the pump"))
			switch {
			case err == nil && got.Decision.Applied:
				moved.Add(1)
			case err == nil && got.Decision.Code == "instance_ended" || engine.CodeOf(err) == engine.CodeConflict:
				told.Add(1)
			default:
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	wg.Wait()
	if moved.Load() != 1 || told.Load() != callers-1 {
		t.Errorf("%d moved, %d were told", moved.Load(), told.Load())
	}
	if n := j.Waiting(); n != 0 {
		t.Errorf("%d turns are left", n)
	}
}

// The model is never asked about an outdated state: a caller that waited for a move gets the present
// position, without a model call.
func TestAConflictWhileWaiting(t *testing.T) {
	pool() // started outside the bubble, because it outlives it
	synctest.Test(t, func(t *testing.T) {
		b, id := turns(t)
		entered, leave := make(chan struct{}), make(chan struct{})
		var asked atomic.Int32
		b.judge.next = verdicts(judge.Verdict{Outcome: judge.Approve, Applied: true, Target: "closed"})
		b.judge.before = func(context.Context, judge.Case) error {
			if asked.Add(1) == 1 {
				close(entered)
				<-leave
			}
			return nil
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := b.Advance(t.Context(), agent, closing(id, "did it")); first <- err }()
		<-entered
		go func() { _, err := b.Advance(t.Context(), agent, closing(id, "Did it!")); second <- err }()
		synctest.Wait() // the second waits for its turn
		close(leave)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		e := wantCode(t, <-second, engine.CodeConflict)
		if e.Current == nil || e.Current.State != "closed" || asked.Load() != 1 {
			t.Errorf("asked %d times, told %+v", asked.Load(), e.Current)
		}
	})
}

// verdicts is a judge that always returns the same verdict.
type verdicts judge.Verdict

func (v verdicts) Decide(context.Context, judge.Case) (judge.Verdict, error) {
	return judge.Verdict(v), nil
}

func (v verdicts) Approve(context.Context, judge.Case, judge.Review) (judge.Verdict, error) {
	return judge.Verdict(v), nil
}

// No caller waits forever, and a caller that cancels stops waiting immediately.
func TestWaitingHasAnEnd(t *testing.T) {
	pool()
	synctest.Test(t, func(t *testing.T) {
		b, id := turns(t)
		leave := make(chan struct{})
		b.judge.before = func(context.Context, judge.Case) error { <-leave; return errors.New("never mind") }
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := b.Advance(t.Context(), agent, closing(id, "did it"))
			wantCode(t, err, engine.CodeInternal)
		}()
		synctest.Wait()
		before := b.load(id).Seq

		began := time.Now()
		_, err := b.Advance(t.Context(), agent, closing(id, "did it!"))
		wantCode(t, err, engine.CodeBusy)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("waited for %v", took)
		}
		left, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_, err = b.Advance(left, agent, closing(id, "did it?"))
		wantCode(t, err, engine.CodeCancelled)
		if took := time.Since(began); took != time.Second {
			t.Errorf("left after a second, and was let go after %v", took)
		}
		if after := b.load(id).Seq; after != before {
			t.Errorf("who was not heard is on record: seq %d -> %d", before, after)
		}
		// Other data do not wait.
		b.judge.before = nil
		if d := b.advance(agent, id, "close", `{"note":"something else"}`).Decision; d.Code != judge.CodeJudgeNotConfigured {
			t.Errorf("%+v", d)
		}
		close(leave)
		<-done
		if n := b.Waiting(); n != 0 {
			t.Errorf("%d turns are left", n)
		}
	})
}

// A panic fails one request, not later ones about the same data.
func TestAPanicEndsItsTurn(t *testing.T) {
	t.Parallel()
	b, id := turns(t)
	b.judge.before = func(context.Context, judge.Case) error { panic("a defect") }
	func() {
		defer func() { _ = recover() }()
		_, err := b.Advance(t.Context(), agent, closing(id, "did it"))
		t.Errorf("no panic: %v", err)
	}()
	b.judge.before = nil
	if d := b.advance(agent, id, "close", `{"note":"did it"}`).Decision; d.Code != judge.CodeJudgeNotConfigured {
		t.Errorf("%+v", d)
	}
	if n := b.Waiting(); n != 0 {
		t.Errorf("%d turns are left", n)
	}
}

// A case that asks no model does not wait for a turn.
func TestNoTurnWithoutAModel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	b.judge.before = func(_ context.Context, c judge.Case) error {
		if c.Guard != "" || c.Identity != "" || b.Waiting() != 0 {
			t.Errorf("guard %q, identity %q, %d turns", c.Guard, c.Identity, b.Waiting())
		}
		return nil
	}
	b.moved(agent, id, "go", "", "b")
}

// forgetful is a store that cannot read refusals.
type forgetful struct{ store.Store }

func (forgetful) Refusals(context.Context, string, string, time.Time) (int, json.RawMessage, error) {
	return 0, nil, errors.New("disk on fire")
}

// A count that cannot be read does not count as 0: nothing is decided.
func TestAMemoryThatFails(t *testing.T) {
	t.Parallel()
	j := newJudged(t, forgetful{memory.New()}, "m")
	j.model.approve.Store(true)
	_, err := j.Advance(t.Context(), agent, closing(j.start(), "did it"))
	wantCode(t, err, engine.CodeUnavailable)
	if n := j.model.calls.Load(); n != 0 || j.Waiting() != 0 {
		t.Errorf("%d calls, %d turns are left", n, j.Waiting())
	}
}
