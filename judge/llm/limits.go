package llm

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// withSlot limits the concurrent requests at one host; one caller gets at most half of the places. A request
// waits in line as long as its question has time.
func withSlot(next Completer, places *fairshare.Queue) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		release, err := places.Acquire(ctx, req.Caller)
		if err == nil {
			defer release()
		}
		// A place may become free just as the waiting request runs out of time, and a timer may fire late.
		deadline, limited := ctx.Deadline()
		ended := ctx.Err() != nil
		switch {
		case ended && asError(contextError(ctx)) == nil:
			return Reply{}, contextError(ctx) // the caller cancelled
		case ended || limited && !time.Now().Before(deadline) || errors.Is(err, fairshare.ErrBusy):
			return Reply{}, &Error{Class: ClassBusy, Message: "too many questions are waiting for this endpoint"}
		case err != nil:
			return Reply{}, err
		}
		return next.Complete(ctx, req)
	})
}

// allowances limits each caller's requests and tokens per minute at one host, so that no single caller uses
// up the provider's limit. Requests without a caller are the gate's own and are not limited.
type allowances struct {
	mu      sync.Mutex
	callers *callerMap[allowance]
}

type allowance struct {
	requests, tokens *rate.Limiter
}

func newAllowances(requests, tokens int) *allowances {
	return &allowances{callers: newCallerMap(func() *allowance {
		return &allowance{requests: perMinute(requests), tokens: perMinute(tokens)}
	})}
}

// perMinute allows about n in any minute: half of them as a burst, the rest spread over the minute.
func perMinute(n int) *rate.Limiter {
	if n <= 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	burst := (n + 1) / 2
	return rate.NewLimiter(rate.Limit(float64(max(n-burst, 1))/time.Minute.Seconds()), burst)
}

func (a *allowances) allowanceOf(caller string) *allowance {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.callers.get(caller)
}

// spendRequest spends one request and its minimum number of tokens, or returns how long the caller must wait.
func (a *allowance) spendRequest(now time.Time, tokens int) time.Duration {
	if left := a.tokens.TokensAt(now); a.tokens.Limit() != rate.Inf && left < 1 {
		return time.Duration((1 - left) / float64(a.tokens.Limit()) * float64(time.Second))
	}
	r := a.requests.ReserveN(now, 1)
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait
	}
	a.spendTokens(now, tokens)
	return 0
}

// spendTokens may spend more tokens than are left; the caller then waits for the debt.
func (a *allowance) spendTokens(now time.Time, tokens int) {
	if a.tokens.Limit() == rate.Inf {
		return
	}
	for tokens > 0 {
		n := min(tokens, a.tokens.Burst())
		a.tokens.ReserveN(now, n)
		tokens -= n
	}
}

// bytesPerToken is used to estimate the tokens of requests whose usage is unknown.
const bytesPerToken = 4

func withAllowance(next Completer, a *allowances) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Caller == "" {
			return next.Complete(ctx, req)
		}
		expected := req.size() / bytesPerToken
		c := a.allowanceOf(req.Caller)
		for wait := c.spendRequest(time.Now(), expected); wait > 0; wait = c.spendRequest(time.Now(), expected) {
			if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
				return Reply{}, &Error{Class: ClassShareSpent, Message: "this caller has reached its limit per minute at the endpoint", RetryAfter: wait}
			}
			if err := sleepContext(ctx, wait); err != nil {
				return Reply{}, err
			}
		}
		reply, err := next.Complete(ctx, req)
		used := reply.Usage
		if fail := asError(err); fail != nil {
			used = fail.Usage
		}
		if used != nil {
			c.spendTokens(time.Now(), used.Prompt+used.Completion-expected)
		}
		return reply, err
	})
}

// size returns the length of the prompt in bytes.
func (r Request) size() int {
	n := len(r.System) + len(r.User) + len(r.Shape)
	for _, m := range r.Dialogue {
		n += len(m.Text)
	}
	return n
}

// How long a caller counts as having contributed to an endpoint's limit after the endpoint last worked for
// it. Providers limit requests and tokens by the minute, the hour or the day, and credit until it is paid.
const (
	overloadWindow = time.Minute
	rateWindow     = time.Hour
	quotaWindow    = 24 * time.Hour
)

// demand records for which callers a host worked recently, so that no caller benefits from a limit to which it
// contributed.
type demand struct {
	mu      sync.Mutex
	callers *callerMap[callerDemand]
	running int // running requests of all callers
}

type callerDemand struct {
	running int       // running requests
	worked  time.Time // when the endpoint last worked on one
}

func newDemand() *demand {
	return &demand{callers: newCallerMap(func() *callerDemand { return &callerDemand{} })}
}

func (d *demand) wrapWatch(next Completer) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		c := d.begin(req.Caller)
		worked := true // assumed in case of a panic
		defer func() { d.end(c, worked) }()
		reply, err := next.Complete(ctx, req)
		worked = hasCost(err)
		return reply, err
	})
}

// hasCost reports whether an endpoint worked on a request that ended with err. Cancellation by the caller does
// not undo the work.
func hasCost(err error) bool {
	switch fail := asError(err); {
	case fail == nil:
		return true
	case fail.Class == ClassTimeout:
		return true
	default:
		return fail.Class.Traits().Success
	}
}

func (d *demand) begin(caller string) *callerDemand {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.callers.get(caller)
	c.running++
	d.running++
	return c
}

func (d *demand) end(c *callerDemand, worked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.running--
	d.running--
	if worked {
		c.worked = time.Now()
	}
}

func (d *demand) isIdle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running == 0
}

// contributed reports whether a caller contributed to a limit of the endpoint that another of its requests has
// just hit.
func (d *demand) contributed(caller string, limit Class) bool {
	within := map[Class]time.Duration{ClassOverloaded: overloadWindow, ClassRateLimited: rateWindow, ClassQuota: quotaWindow}[limit]
	if within == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.callers.Get(caller)
	return ok && (c.running > 0 || !c.worked.IsZero() && time.Since(c.worked) < within)
}

func (d *demand) wrapAttribute(next Completer) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		reply, err := next.Complete(ctx, req)
		fail := asError(err)
		if fail == nil || fail.CallerPart {
			return reply, err
		}
		limit := fail.Class
		if limit == ClassNotBefore {
			limit = fail.Limit
		}
		if !d.contributed(req.Caller, limit) {
			return reply, err
		}
		return Reply{}, fail.withChange(func(e *Error) { e.CallerPart = true })
	})
}
