package llm

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// allowances bound what each caller may ask of one host in a minute, in requests and in
// tokens, so that one caller alone does not reach the provider's limit. Requests without
// a caller are the gate's own and have no bound.
type allowances struct {
	mu      sync.Mutex
	callers *callerMap[allowance]
}

// allowance is one caller's.
type allowance struct {
	requests, tokens *rate.Limiter
}

func newAllowances(requests, tokens int) *allowances {
	return &allowances{callers: newCallerMap(func() *allowance {
		return &allowance{requests: perMinute(requests), tokens: perMinute(tokens)}
	})}
}

// perMinute allows at most about n in any minute: half of them at once, the other half
// spread over it.
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
	return a.callers.of(caller)
}

// spendRequest spends one request, and the tokens that it costs at least. It returns how long
// the caller has to wait instead, 0 when it need not.
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

// spendTokens takes tokens, also more than are left: the debt is waited for.
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

// bytesPerToken is how long a token is about, for requests whose use is not known (yet).
const bytesPerToken = 4

// withAllowance keeps each caller to its allowance.
func withAllowance(next Completer, a *allowances) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Caller == "" {
			return next.Complete(ctx, req)
		}
		expected := (len(req.System) + len(req.User) + len(req.Shape)) / bytesPerToken
		c := a.allowanceOf(req.Caller)
		if wait := c.spendRequest(time.Now(), expected); wait > 0 {
			return Reply{}, &Error{Class: ClassShareSpent, Message: "this caller has asked the endpoint as much as it may in a minute", RetryAfter: wait}
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
