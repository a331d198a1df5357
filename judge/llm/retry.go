package llm

import (
	"context"
	"sync"
	"time"
)

// withRetry asks the same model again after failures that waiting can cure, with
// exponential waits and full jitter (AWS Architecture Blog, "Exponential Backoff And
// Jitter"), or as long as the endpoint says. It never waits past the deadline: what
// cannot be awaited is returned at once. All callers share a budget of retries, so
// that a failing endpoint is not asked several times as much as a working one.
func withRetry(next Completer, cfg Config, budget *retryBudget, count *counters) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		calls := &callBudget{left: cfg.MaxCalls}
		ctx = context.WithValue(ctx, callBudgetKey{}, calls)
		budget.call()
		made, late := 0, false
		for try := 0; ; try++ {
			reply, err := next.Complete(ctx, req)
			reply.Calls += made
			fail := asError(err)
			if fail == nil {
				return reply, err
			}
			made += fail.Calls
			fail = fail.afterCalls(made)
			// The last try may have been cut short where another one had its whole time.
			late = late || fail.whole
			fail.whole = late && fail.Class == ClassTimeout
			if try >= cfg.Retries || calls.left <= 0 || !fail.Class.Traits().Retry {
				return Reply{}, fail
			}
			wait := fail.RetryAfter
			if wait <= 0 {
				wait = time.Duration(float64(backoff(cfg, try)) * cfg.Jitter())
			}
			if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait || !budget.take() {
				return Reply{}, fail
			}
			count.retry()
			if err := sleepContext(ctx, wait); err != nil {
				if isContext(err) {
					return Reply{}, err
				}
				return Reply{}, fail // the deadline says less than what happened
			}
		}
	})
}

// backoff is the longest wait after so many tries: it doubles up to the most.
func backoff(cfg Config, tries int) time.Duration {
	wait := min(cfg.Backoff, cfg.MaxBackoff)
	for range tries {
		if wait > cfg.MaxBackoff/2 {
			return cfg.MaxBackoff
		}
		wait *= 2
	}
	return wait
}

// sleepContext waits, or returns why the context ended.
func sleepContext(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}

// callBudget bounds how often one question asks one model for a judgement, retries
// and re-asking together. It belongs to one goroutine.
type callBudget struct {
	left    int
	reasked bool
}

type callBudgetKey struct{}

// spendCall takes one call out of the budget of the question, if there is one.
func spendCall(ctx context.Context) *callBudget {
	b, ok := ctx.Value(callBudgetKey{}).(*callBudget)
	if !ok {
		b = &callBudget{left: 2}
	}
	b.left--
	return b
}

// retryBudget allows retries as a share of the calls of the last minute, and never
// fewer than leastRetries (Finagle's retry budgets work so).
type retryBudget struct {
	share float64

	mu      sync.Mutex
	since   time.Time
	calls   int // in this minute
	retries int
	before  int // calls in the minute before
}

const leastRetries = 3

func newRetryBudget(share float64) *retryBudget { return &retryBudget{share: share} }

// startMinute begins a new minute when the old one is over. The caller holds the lock.
func (b *retryBudget) startMinute() {
	now := time.Now()
	switch passed := now.Sub(b.since); {
	case b.since.IsZero() || passed >= 2*time.Minute:
		b.since, b.before, b.calls, b.retries = now, 0, 0, 0
	case passed >= time.Minute:
		b.since, b.before, b.calls, b.retries = now, b.calls, 0, 0
	}
}

func (b *retryBudget) call() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.startMinute()
	b.calls++
}

func (b *retryBudget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.startMinute()
	if b.retries >= max(leastRetries, int(b.share*float64(max(b.calls, b.before)))) {
		return false
	}
	b.retries++
	return true
}
