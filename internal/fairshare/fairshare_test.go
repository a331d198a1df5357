package fairshare_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func acquire(t *testing.T, q *fairshare.Queue, caller string) func() {
	t.Helper()
	release, err := q.Acquire(t.Context(), caller)
	if err != nil {
		t.Fatalf("Acquire(%s): %v", caller, err)
	}
	return release
}

func TestCallerHoldsAtMostItsShare(t *testing.T) {
	q := fairshare.New(fairshare.Config{Permits: 4})
	for range 2 {
		defer acquire(t, q, "greedy")()
	}
	if _, ok := q.TryAcquire("greedy"); ok {
		t.Fatal("one caller got a third permit of four")
	}
	for range 2 {
		defer acquire(t, q, "honest")()
	}
	if got := q.Stats(); got != (fairshare.Stats{Held: 4, Busy: 1}) {
		t.Errorf("stats = %+v", got)
	}
}

// A call that waits longer than Config.Wait gets ErrLate and leaves nothing behind.
func TestWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairshare.New(fairshare.Config{Permits: 1, Wait: time.Second})
		release, began := acquire(t, q, "a"), time.Now()
		if _, err := q.Acquire(t.Context(), "b"); !errors.Is(err, fairshare.ErrLate) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if got := q.Stats(); got != (fairshare.Stats{Held: 1}) {
			t.Errorf("stats = %+v", got)
		}
		release()
		acquire(t, q, "b")()
	})
}

// A caller with a hundred waiting calls delays another caller only by the permits that it holds, not by its
// waiting calls.
func TestNewCallerIsServedNext(t *testing.T) {
	for _, hold := range []time.Duration{time.Nanosecond, time.Second} {
		t.Run(hold.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := fairshare.New(fairshare.Config{Permits: 2, PerCaller: 2})
				var grants, honest int
				var mu sync.Mutex
				work := func(caller string) {
					release, err := q.Acquire(t.Context(), caller)
					if err != nil {
						t.Errorf("Acquire(%s): %v", caller, err)
						return
					}
					mu.Lock()
					grants++
					if caller == "honest" && honest == 0 {
						honest = grants
					}
					mu.Unlock()
					time.Sleep(hold) //nolint:forbidigo // the bubble's clock
					release()
				}
				first, second := acquire(t, q, "greedy"), acquire(t, q, "greedy")
				for range 100 {
					go work("greedy")
				}
				synctest.Wait()
				go work("honest")
				synctest.Wait()
				first()
				second()
				synctest.Wait()
				time.Sleep(200 * time.Second) //nolint:forbidigo // the bubble's clock
				synctest.Wait()
				if grants != 101 || honest == 0 || honest > 2 {
					t.Errorf("the new caller got grant %d of %d", honest, grants)
				}
			})
		})
	}
}

// Callers that always wait get equal time, not equal numbers of grants.
func TestTimeIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairshare.New(fairshare.Config{Permits: 1})
		ctx, stop := context.WithTimeout(t.Context(), 1000*time.Second)
		defer stop()
		used := map[string]time.Duration{}
		var mu sync.Mutex
		for caller, hold := range map[string]time.Duration{"slow": 10 * time.Second, "quick": time.Second} {
			for range 3 {
				go func() {
					for {
						release, err := q.Acquire(ctx, caller)
						if err != nil {
							return
						}
						time.Sleep(hold) //nolint:forbidigo // the bubble's clock
						mu.Lock()
						used[caller] += hold
						mu.Unlock()
						release()
					}
				}()
			}
		}
		<-ctx.Done()
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		synctest.Wait()
		if slow, quick := used["slow"], used["quick"]; slow+quick < 990*time.Second || slow > quick+30*time.Second || quick > slow+30*time.Second {
			t.Errorf("of 1000s slow used %s, quick %s", slow, quick)
		}
	})
}

func TestFullLineDropsTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairshare.New(fairshare.Config{Permits: 1, Waiting: 10})
		release := acquire(t, q, "greedy")
		errs := make(chan error, 20)
		wait := func(caller string) {
			go func() {
				release, err := q.Acquire(t.Context(), caller)
				if err == nil {
					release()
				}
				errs <- err
			}()
			synctest.Wait()
		}
		for range 10 {
			wait("greedy")
		}
		for range 5 {
			wait("honest")
		}
		if got := q.Stats(); got != (fairshare.Stats{Held: 1, Waiting: 10, Busy: 5}) {
			t.Fatalf("stats = %+v", got)
		}
		wait("honest") // both lines now have the same length
		release()
		synctest.Wait()
		busy := 0
		for range 16 {
			switch err := <-errs; {
			case errors.Is(err, fairshare.ErrBusy):
				busy++
			case err != nil:
				t.Error(err)
			}
		}
		if busy != 6 {
			t.Errorf("%d calls were busy, want 5 of the greedy caller and 1 of the other", busy)
		}
	})
}

func TestAcquireEndsWithItsContextAndWithTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairshare.New(fairshare.Config{Permits: 1})
		release := acquire(t, q, "a")
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(chan error, 2)
		go func() { _, err := q.Acquire(ctx, "b"); errs <- err }()
		synctest.Wait()
		cancel(gone)
		if err := <-errs; !errors.Is(err, gone) {
			t.Errorf("after the context ended: %v", err)
		}
		if _, err := q.Acquire(ctx, "b"); !errors.Is(err, gone) {
			t.Errorf("with an ended context: %v", err)
		}
		go func() { _, err := q.Acquire(t.Context(), "b"); errs <- err }()
		synctest.Wait()
		q.Close()
		if err := <-errs; !errors.Is(err, fairshare.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		release()
		release()
		if _, err := q.Acquire(t.Context(), "b"); !errors.Is(err, fairshare.ErrClosed) {
			t.Errorf("of a closed queue: %v", err)
		}
		if _, ok := q.TryAcquire("b"); ok {
			t.Error("a closed queue gave a permit")
		}
		if got := q.Stats(); got.Held != 0 || got.Waiting != 0 {
			t.Errorf("stats = %+v", got)
		}
	})
}

// For any sequence of calls: no permit is lost or created, no caller exceeds its share, and no permit stays
// free while a caller that may hold it waits.
func TestQueueModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, checkQueueModel) // hides Deadline, which panics in a bubble
	})
}

func checkQueueModel(t *rapid.T) {
	permits := rapid.IntRange(1, 6).Draw(t, "permits")
	perCaller := rapid.IntRange(0, permits).Draw(t, "perCaller")
	limit := rapid.IntRange(1, 8).Draw(t, "waiting")
	q := fairshare.New(fairshare.Config{Permits: permits, PerCaller: perCaller, Waiting: limit})
	if perCaller == 0 {
		perCaller = (permits + 1) / 2
	}
	type call struct {
		caller  string
		cancel  context.CancelFunc
		done    chan struct{}
		release func()
		err     error
	}
	var calls []*call
	t.Repeat(map[string]func(*rapid.T){
		"acquire": func(t *rapid.T) {
			ctx, cancel := context.WithCancel(context.Background())
			c := &call{caller: fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "caller")), cancel: cancel, done: make(chan struct{})}
			calls = append(calls, c)
			go func() {
				release, err := q.Acquire(ctx, c.caller)
				c.release, c.err = release, err
				close(c.done)
			}()
			synctest.Wait()
		},
		"end": func(t *rapid.T) {
			if len(calls) == 0 {
				t.Skip("none")
			}
			i := rapid.IntRange(0, len(calls)-1).Draw(t, "call")
			c := calls[i]
			calls = append(calls[:i:i], calls[i+1:]...)
			c.cancel()
			<-c.done
			if c.release != nil {
				c.release()
				c.release()
			}
			synctest.Wait()
		},
		"": func(t *rapid.T) {
			held, waiting := map[string]int{}, map[string]int{}
			for _, c := range calls {
				select {
				case <-c.done:
					if c.release != nil {
						held[c.caller]++
					} else if !errors.Is(c.err, fairshare.ErrBusy) {
						t.Fatalf("Acquire: %v", c.err)
					}
				default:
					waiting[c.caller]++
				}
			}
			s := q.Stats()
			if s.Held > permits || s.Waiting > limit {
				t.Fatalf("stats = %+v", s)
			}
			for caller, n := range held {
				if n > perCaller {
					t.Fatalf("%s holds %d of %d permits, at most %d", caller, n, permits, perCaller)
				}
			}
			for caller := range waiting {
				if s.Held < permits && held[caller] < perCaller {
					t.Fatalf("%s waits while a permit is free", caller)
				}
			}
		},
	})
	for _, c := range calls {
		c.cancel()
		<-c.done
		if c.release != nil {
			c.release()
		}
	}
	if s := q.Stats(); s.Held != 0 || s.Waiting != 0 {
		t.Fatalf("at the end: %+v", s)
	}
}

func BenchmarkAcquire(b *testing.B) {
	b.Run("fairshare", func(b *testing.B) {
		q := fairshare.New(fairshare.Config{Permits: 4})
		for b.Loop() {
			release, err := q.Acquire(b.Context(), "a")
			if err != nil {
				b.Fatal(err)
			}
			release()
		}
	})
	b.Run("long line", func(b *testing.B) { // measures one grant while 2,000 calls wait
		q := fairshare.New(fairshare.Config{Permits: 1, Waiting: 4000})
		ctx, cancel := context.WithCancel(b.Context())
		var callers sync.WaitGroup
		for range 2000 {
			callers.Go(func() {
				for {
					release, err := q.Acquire(ctx, "a")
					if err != nil {
						return
					}
					release()
				}
			})
		}
		for b.Loop() {
			release, err := q.Acquire(b.Context(), "b")
			if err != nil {
				b.Fatal(err)
			}
			release()
		}
		cancel()
		callers.Wait()
	})
	b.Run("channel", func(b *testing.B) {
		slots := make(chan struct{}, 4)
		for b.Loop() {
			slots <- struct{}{}
			<-slots
		}
	})
}
