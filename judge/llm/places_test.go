package llm

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// However many questions one caller asks, half of the places remain free for others. An honest caller is
// served immediately and never gets ClassBusy.
func TestNoisyNeighbour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, _ int, req Request) (Reply, error) {
			if req.Caller == "noisy" {
				return good(), sleepContext(ctx, 9*time.Second)
			}
			return good(), sleepContext(ctx, time.Second)
		}}
		c := clientOver(t, Config{CallerRequests: -1}, f)
		var noise sync.WaitGroup
		var busy, fine atomic.Int32
		for range 64 {
			noise.Go(func() {
				switch _, err := c.Complete(t.Context(), Request{Caller: "noisy"}); {
				case err == nil:
					fine.Add(1)
				case ClassOf(err) == ClassBusy || ClassOf(err) == ClassTimeout: // while waiting, or in the last second
					busy.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := f.calls.Load(); n != 4 {
			t.Errorf("the flood has %d of 8 places", n)
		}
		for i := range 30 {
			began := time.Now()
			if _, err := c.Complete(t.Context(), Request{Caller: "honest"}); err != nil || time.Since(began) != time.Second {
				t.Errorf("honest question %d: %v after %v", i, err, time.Since(began))
			}
		}
		noise.Wait()
		if fine.Load() != 8 || busy.Load() != 56 {
			t.Errorf("the flood: %d answered, %d busy", fine.Load(), busy.Load())
		}
	})
}

// Waiting in line is not a failure of the endpoint and reveals nothing about the case, even if our own
// deadline ends the wait.
func TestWaitingIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		places := fairshare.New(fairshare.Config{Permits: 1})
		c := withSlot(CompleterFunc(func(context.Context, Request) (Reply, error) { return good(), nil }), places)
		release, err := places.Acquire(t.Context(), "noisy")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, deadlineError(time.Second))
		defer cancel()
		if _, err := c.Complete(ctx, Request{Caller: "alice"}); ClassOf(err) != ClassBusy || !asError(err).IsBusy() {
			t.Errorf("our time is over: %v", err)
		}
		left, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := c.Complete(left, Request{Caller: "alice"}); !errors.Is(err, context.DeadlineExceeded) || asError(err) != nil {
			t.Errorf("the caller's is: %v", err)
		}
		release()
		if _, err := c.Complete(t.Context(), Request{Caller: "alice"}); err != nil {
			t.Error(err)
		}
	})
}

// Two models of one host share its places.
func TestModelsOfAHostShareItsPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, _ int, _ Request) (Reply, error) {
			return good(), sleepContext(ctx, 5*time.Second)
		}}
		c, err := newClient(Config{Models: []Model{{ID: "a"}, {ID: "b"}}, Parallel: 2}, func(Model, Config) (innermost, error) {
			return innermost{f, func(next Completer) Completer { return next }, func() Capabilities { return Capabilities{} }, "one.host"}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i, model := range []string{"a", "b", "a", "b"} {
			wg.Go(func() { _, _ = c.Complete(t.Context(), Request{Model: model, Caller: strconv.Itoa(i)}) })
		}
		synctest.Wait()
		if f.calls.Load() != 2 {
			t.Errorf("%d under way", f.calls.Load())
		}
		wg.Wait()
	})
}
