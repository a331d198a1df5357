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
)

// One caller cannot take all places.
func TestBulkhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, _ int, _ Request) (Reply, error) { return good(), sleep(ctx, 5*time.Second) }}
		c := clientOver(t, Config{Parallel: 4}, f)
		var wg sync.WaitGroup
		var busy, fine atomic.Int32
		for range 20 {
			wg.Go(func() {
				if _, err := c.Complete(t.Context(), Request{Caller: "flood"}); ClassOf(err) == ClassBusy {
					busy.Add(1)
				} else if err == nil {
					fine.Add(1)
				}
			})
		}
		synctest.Wait()
		if f.calls.Load() != 2 {
			t.Errorf("the flood has %d places", f.calls.Load())
		}
		began := time.Now()
		if _, err := c.Complete(t.Context(), Request{Caller: "alice"}); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("alice: %v after %v", err, time.Since(began))
		}
		wg.Wait()
		if busy.Load() != 18 || fine.Load() != 2 {
			t.Errorf("%d busy, %d fine", busy.Load(), fine.Load())
		}
	})
}

// A full bulkhead is nobody's failure but the flood's: it neither counts against the
// endpoint nor lets anything pass, also when it is our deadline that ends the wait.
func TestWaitingIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBulkhead(1, time.Minute)
		if err := b.enter(t.Context(), "flood"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, tooLate(time.Second))
		defer cancel()
		if err := b.enter(ctx, "alice"); ClassOf(err) != ClassBusy {
			t.Errorf("our time is over: %v", err)
		}
		left, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if err := b.enter(left, "alice"); !errors.Is(err, context.DeadlineExceeded) || ours(err) != nil {
			t.Errorf("the caller's is: %v", err)
		}
		b.leave("flood")
		if err := b.enter(t.Context(), "alice"); err != nil || len(b.byCaller) != 1 {
			t.Errorf("%v, %v", err, b.byCaller)
		}
	})
}

// The places are those of a host: two models of one server share them.
func TestModelsOfAHostShareItsPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, _ int, _ Request) (Reply, error) { return good(), sleep(ctx, 5*time.Second) }}
		c, err := newClient(Config{Models: []Model{{ID: "a"}, {ID: "b"}}, Parallel: 2}, func(Model) (innermost, error) {
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
