package llm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

// withRetry retries transient failures, with exponential backoff and full jitter (AWS Architecture Blog,
// "Exponential Backoff And Jitter"), or after the delay that the endpoint asks for. It never waits past the
// deadline.
//
// Retries that no endpoint asked for come from a budget that all callers share. So a failing endpoint does
// not get several times the load of a working one, and a dead one gets no retries. withRetry also waits out
// a pause that another call caused; that does not count as a retry.
func withRetry(next Completer, cfg Config, b *breaker, budget *retryBudget, count *counters) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		calls := &callBudget{left: cfg.MaxCalls}
		ctx = context.WithValue(ctx, callBudgetKey{}, calls)
		budget.call()
		made, retries, late := 0, 0, false
		for {
			reply, err := next.Complete(ctx, req)
			reply.Calls += made
			fail := asError(err)
			if fail == nil {
				return reply, err
			}
			paused := fail.Class == ClassNotBefore && fail.Calls == 0 && fail.RetryAfter > 0
			if paused {
				calls.left++ // no request was made
			}
			made += fail.Calls
			fail = fail.afterCalls(made)
			// One timeout after the full time is enough: the last attempt may have been cut short.
			late = late || fail.whole
			fail.whole = late && fail.Class == ClassTimeout
			if !paused && (retries >= cfg.Retries || calls.left <= 0 || !fail.Class.Traits().Retry) {
				return Reply{}, fail
			}
			wait := fail.RetryAfter
			if wait <= 0 {
				wait = time.Duration(float64(backoffFor(cfg.Backoff, retries)) * cfg.Jitter())
			}
			if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait || fail.RetryAfter <= 0 && !(b.allowsRetry(cfg) && budget.spend()) {
				return Reply{}, fail
			}
			if !paused {
				retries++
				count.add(func(s *Stats) { s.Retries++ })
			}
			if err := sleepContext(ctx, wait); err != nil {
				if isContext(err) {
					return Reply{}, err
				}
				return Reply{}, fail // the failure is more informative than the deadline
			}
		}
	})
}

func backoffFor(first time.Duration, tries int) time.Duration {
	wait := min(first, maxBackoff)
	for range tries {
		wait = min(2*wait, maxBackoff)
	}
	return wait
}

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

// callBudget limits the requests to one model about one question, including retries and the repeat after an
// unusable answer. It is used by one goroutine only.
type callBudget struct {
	left    int
	reasked bool
}

type callBudgetKey struct{}

func spendCall(ctx context.Context) *callBudget {
	b, ok := ctx.Value(callBudgetKey{}).(*callBudget)
	if !ok {
		b = &callBudget{left: 2}
	}
	b.left--
	return b
}

const (
	maxBackoff = 2 * time.Second
	retryShare = 0.2 // retries per call, over all callers
	minRetries = 3   // retries that are always allowed in a minute
)

// retryBudget limits the retries in a minute to a share of the calls in this minute or the previous one,
// whichever had more, but allows at least minRetries (like Finagle).
type retryBudget struct {
	mu      sync.Mutex
	since   time.Time
	calls   int // in the current minute
	retries int
	before  int // calls in the previous minute
}

// startMinute must be called with the lock held.
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

func (b *retryBudget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.startMinute()
	if b.retries >= max(minRetries, int(retryShare*float64(max(b.calls, b.before)))) {
		return false
	}
	b.retries++
	return true
}

// withReask asks once more if an answer is unusable. It describes the problem in fixed words, because data
// that the model quoted must not come back as an instruction.
func withReask(next Completer, cfg Config, count *counters) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		budget := spendCall(ctx)
		if len(req.Dialogue) > 0 { // a dialogue has no required form of answer
			return next.Complete(ctx, req)
		}
		reply, err := checkReply(next.Complete(ctx, req))(req)
		fail := asError(err)
		if fail == nil || !fail.Class.Traits().Reask || budget.left <= 0 || budget.reasked || req.Complaint != "" {
			return reply, err
		}
		again := req
		again.Complaint = complaintOf(fail)
		if fail.Class == ClassTruncated {
			again.MaxTokens = 2 * tokensOf(req, cfg)
		}
		count.add(func(s *Stats) { s.Reasked++ })
		budget.left--
		budget.reasked = true
		reply, err = checkReply(next.Complete(ctx, again))(req)
		reply.Calls += fail.Calls
		if err != nil {
			if second := asError(err); second != nil && second.Class == ClassShareSpent {
				return Reply{}, fail // the first answer's failure says more than the refusal to ask again
			} else if second != nil {
				return Reply{}, second.afterCalls(second.Calls + fail.Calls)
			}
			return Reply{}, err
		}
		reply.Reasked = true
		return reply, nil
	})
}

func checkReply(reply Reply, err error) func(Request) (Reply, error) {
	return func(req Request) (Reply, error) {
		if err != nil || req.Check == nil {
			return reply, err
		}
		if wrong := req.Check(reply.Answer); wrong != nil {
			class := ClassInconsistent
			if errors.Is(wrong, ErrIncomplete) {
				class = ClassIncomplete
			}
			return Reply{}, &Error{
				Class: class, Message: quoteForeign(wrong.Error()), Model: reply.Model, Endpoint: reply.Endpoint,
				Breaker: reply.Breaker, Calls: reply.Calls, Usage: reply.Usage,
			}
		}
		return reply, nil
	}
}

func complaintOf(fail *Error) string {
	var b strings.Builder
	b.WriteString("Your previous answer could not be used")
	switch fail.Class {
	case ClassEmpty:
		b.WriteString(": it was empty.")
	case ClassTruncated:
		b.WriteString(": it was cut off. Answer more briefly.")
	case ClassAmbiguous:
		b.WriteString(": it held more than one verdict.")
	case ClassInconsistent:
		b.WriteString(": it contradicts itself. approved must be true if and only if every criterion is met, and violations must be empty then; each criterion is answered once, and confidence is a number from 0 to 1.")
	case ClassIncomplete:
		b.WriteString(": its criteria are not exactly those that were asked. Answer each of them once, under its own id, with the members and values of the form.")
	default:
		b.WriteString(": it was not in the form that was asked for.")
	}
	b.WriteString(" Judge the same documents again and answer in exactly that form.")
	return b.String()
}

func tokensOf(req Request, cfg Config) int {
	if req.MaxTokens > 0 {
		return req.MaxTokens
	}
	at := slices.IndexFunc(cfg.Models, func(m Model) bool { return m.Name == req.Model })
	return cfg.tokensFor(cfg.Models[max(at, 0)])
}
