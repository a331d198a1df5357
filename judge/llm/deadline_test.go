package llm

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientOver(t, Config{}, &fake{do: hanging})
		began := time.Now()
		_, err := c.Complete(t.Context(), Request{})
		if ClassOf(err) != ClassTimeout || time.Since(began) != 20*time.Second {
			t.Errorf("ours: %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began = time.Now()
		if _, err := c.Complete(ctx, Request{}); !errors.Is(err, context.DeadlineExceeded) || asError(err) != nil || time.Since(began) != 3*time.Second {
			t.Errorf("the caller's: %v after %v", err, time.Since(began))
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := c.Complete(gone, Request{}); !errors.Is(err, context.Canceled) {
			t.Errorf("gone: %v", err)
		}
		if counts := c.models[0].breaker.two.Counts(); counts.TotalFailures != 0 || c.models[0].late.callers[""] != 1 {
			t.Errorf("callers who leave count for nothing: %+v, %v", counts, c.models[0].late.callers)
		}
	})
}

// One request has its own time limit, and the error shows whose time limit ended it.
func TestAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := withAttempt(CompleterFunc(func(ctx context.Context, req Request) (Reply, error) { return hanging(ctx, 0, req) }), 10*time.Second, time.Second)
		began := time.Now()
		_, err := c.Complete(t.Context(), Request{})
		if ClassOf(err) != ClassTimeout || time.Since(began) != 10*time.Second {
			t.Errorf("ours: %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Complete(ctx, Request{}); !errors.Is(err, context.DeadlineExceeded) || asError(err) != nil {
			t.Errorf("the caller's: %v", err)
		}
		deaf := withAttempt(CompleterFunc(func(ctx context.Context, _ Request) (Reply, error) {
			<-ctx.Done()
			return Reply{}, ctx.Err() // ignores the cause
		}), time.Second, time.Second)
		if _, err := deaf.Complete(t.Context(), Request{}); ClassOf(err) != ClassTimeout || asError(err).Calls != 1 {
			t.Errorf("without the cause: %v", err)
		}
		if _, err := withDeadline(CompleterFunc(func(ctx context.Context, _ Request) (Reply, error) {
			<-ctx.Done()
			return Reply{}, ctx.Err()
		}), time.Second).Complete(t.Context(), Request{}); ClassOf(err) != ClassTimeout {
			t.Errorf("the whole, without the cause: %v", err)
		}
	})
}

// The error describes the failure before the deadline, not only the deadline.
func TestDeadlineDoesNotHideTheFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientOver(t, Config{Deadline: 3 * time.Second, Backoff: 2 * time.Second}, &fake{do: failing(ClassNetwork)})
		began := time.Now()
		if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassNetwork || asError(err).Calls != 2 || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
