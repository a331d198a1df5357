package llm

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// withPlace limits the requests that run at one host, and gives one caller at most half
// of the places. A request waits in line as long as its question has time.
func withPlace(next Completer, places *fairshare.Queue, behind *background) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Background {
			return behind.complete(ctx, next, places, req)
		}
		release, err := behind.acquire(ctx, places, req.Caller)
		if err == nil {
			defer release()
		}
		// A place often comes free in the instant in which the time of all who wait is up,
		// and a timer may be late.
		deadline, limited := ctx.Deadline()
		ended := ctx.Err() != nil
		switch {
		case ended && asError(contextError(ctx)) == nil:
			return Reply{}, contextError(ctx) // the caller left
		case ended || limited && !time.Now().Before(deadline) || errors.Is(err, fairshare.ErrBusy):
			return Reply{}, &Error{Class: ClassBusy, Message: "too many questions wait for this endpoint"}
		case err != nil:
			return Reply{}, err
		}
		return next.Complete(ctx, req)
	})
}

// allowances limit what each caller may ask of one host in a minute, in requests and
// tokens, so that no caller alone reaches the provider's limit. Requests without a
// caller are the gate's own and unlimited.
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

// perMinute allows about n in any minute: half of them at once, the rest spread over
// it.
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
	return a.callers.recordOf(caller)
}

// spendRequest spends one request and the tokens it costs at least, or returns how long
// the caller has to wait.
func (c *allowance) spendRequest(now time.Time, tokens int) time.Duration {
	if left := c.tokens.TokensAt(now); c.tokens.Limit() != rate.Inf && left < 1 {
		return time.Duration((1 - left) / float64(c.tokens.Limit()) * float64(time.Second))
	}
	r := c.requests.ReserveN(now, 1)
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait
	}
	c.spendTokens(now, tokens)
	return 0
}

// spendTokens may take more tokens than are left: the caller waits for the debt.
func (c *allowance) spendTokens(now time.Time, tokens int) {
	if c.tokens.Limit() == rate.Inf {
		return
	}
	for tokens > 0 {
		n := min(tokens, c.tokens.Burst())
		c.tokens.ReserveN(now, n)
		tokens -= n
	}
}

// bytesPerToken estimates requests whose usage is unknown (yet).
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

// size is how many bytes the endpoint gets to read.
func (r Request) size() int {
	n := len(r.System) + len(r.User) + len(r.Shape)
	for _, m := range r.Dialogue {
		n += len(m.Text)
	}
	return n
}

// How long a caller that an endpoint has worked for counts as one that took part in a
// limit of that endpoint. A provider counts requests and tokens by the minute, the hour
// or the day, and credit until somebody pays.
const (
	partInOverload = time.Minute
	partInRate     = time.Hour
	partInQuota    = 24 * time.Hour
)

// demand knows for which callers a host worked recently, so that no caller profits from
// a limit that it helped to reach.
type demand struct {
	mu      sync.Mutex
	callers *callerMap[callerDemand]
	running int // requests of all callers under way
}

type callerDemand struct {
	running int       // requests under way
	worked  time.Time // when the endpoint last worked on one
}

func newDemand() *demand {
	return &demand{callers: newCallerMap(func() *callerDemand { return &callerDemand{} })}
}

func (d *demand) wrapWatch(next Completer) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		c := d.begin(req.Caller)
		worked := true // a panic says nothing else
		defer func() { d.end(c, worked) }()
		reply, err := next.Complete(ctx, req)
		worked = hasCost(err)
		return reply, err
	})
}

// hasCost reports whether an endpoint worked on a request that ended so. A caller that
// leaves does not undo the work.
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
	c := d.callers.recordOf(caller)
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

// tookPart reports whether a caller helped to reach a limit of the endpoint, which
// another of its requests has just met.
func (d *demand) tookPart(caller string, limit Class) bool {
	within := map[Class]time.Duration{ClassOverloaded: partInOverload, ClassRateLimited: partInRate, ClassQuota: partInQuota}[limit]
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
		if !d.tookPart(req.Caller, limit) {
			return reply, err
		}
		return Reply{}, fail.withChange(func(e *Error) { e.CallerPart = true })
	})
}
