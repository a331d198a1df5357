package llm

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	limited := func(after time.Duration, times int) *fake {
		return &fake{do: func(_ context.Context, n int, _ Request) (Reply, error) {
			if n <= times {
				return Reply{}, &Error{Class: ClassRateLimited, RetryAfter: after}
			}
			return good(), nil
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		f := limited(7*time.Second, 1)
		began := time.Now()
		if reply, err := clientOver(t, Config{}, f).Complete(t.Context(), Request{}); err != nil || time.Since(began) != 7*time.Second || reply.Calls != 2 {
			t.Errorf("it fits: %+v, %v after %v", reply, err, time.Since(began))
		}
		f = limited(time.Minute, 1)
		c := clientOver(t, Config{}, f)
		began = time.Now()
		if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassRateLimited || time.Since(began) != 0 {
			t.Errorf("it does not fit: %v after %v", err, time.Since(began))
		}
		if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassNotBefore || asError(err).RetryAfter != time.Minute || f.calls.Load() != 1 {
			t.Errorf("the gate: %v, %d calls", err, f.calls.Load())
		}
		pass(time.Minute)
		if _, err := c.Complete(t.Context(), Request{}); err != nil {
			t.Errorf("after the wait: %v", err)
		}
	})
}

// Retries and re-asking share one limit.
func TestRetriesAndReaskingShareOneLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(_ context.Context, n int, _ Request) (Reply, error) {
			return Reply{}, &Error{Class: chooseDefault(n == 1, ClassMalformed, ClassNetwork)}
		}}
		if _, err := clientOver(t, Config{}, f).Complete(t.Context(), Request{}); asError(err).Calls != 3 || f.calls.Load() != 3 {
			t.Errorf("%v, %d calls", err, f.calls.Load())
		}
	})
}

// A failing endpoint does not get several times the load of a working one.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: failing(ClassUpstream)}
		c := clientOver(t, Config{BreakerFailures: 1 << 20, BreakerMin: 1 << 20, Jitter: func() float64 { return 0 }}, f)
		for range 100 {
			_, _ = c.Complete(t.Context(), Request{})
		}
		if calls := f.calls.Load(); calls < 110 || calls > 125 {
			t.Errorf("%d calls for 100 questions", calls)
		}
		pass(2 * time.Minute)
		before := f.calls.Load()
		_, _ = c.Complete(t.Context(), Request{})
		if got := f.calls.Load() - before; got != 3 {
			t.Errorf("%d calls after a rest", got)
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	first := 250 * time.Millisecond
	for tries, want := range map[int]time.Duration{0: first, 1: 2 * first, 2: 4 * first, 3: 2 * time.Second, 4: 2 * time.Second, 1000: 2 * time.Second} {
		if got := backoffFor(first, tries); got != want {
			t.Errorf("after %d tries %v, want %v", tries, got, want)
		}
	}
	if got := backoffFor(time.Hour, 0); got != maxBackoff {
		t.Errorf("more than the most: %v", got)
	}
}

// Each delay is the backoff multiplied by the jitter.
func TestJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: failing(ClassUpstream)}
		began := time.Now()
		_, err := clientOver(t, Config{Jitter: func() float64 { return 0.5 }}, f).Complete(t.Context(), Request{})
		if took := time.Since(began); took != (250+500)/2*time.Millisecond || ClassOf(err) != ClassUpstream {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestNoRetries(t *testing.T) {
	t.Parallel()
	f := &fake{do: failing(ClassUpstream)}
	if _, err := clientOver(t, Config{Retries: -1}, f).Complete(t.Context(), Request{}); ClassOf(err) != ClassUpstream || f.calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, f.calls.Load())
	}
}

// Cancellation during a retry's delay takes effect immediately.
func TestLeavingWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(context.Context, int, Request) (Reply, error) {
			return Reply{}, &Error{Class: ClassRateLimited, RetryAfter: 10 * time.Second}
		}}
		c := clientOver(t, Config{}, f)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		began := time.Now()
		if _, err := c.Complete(ctx, Request{}); !errors.Is(err, context.Canceled) || asError(err) != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
