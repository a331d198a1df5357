package llm

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Client asks models and survives every way in which they can fail. It is a stack
// of decorators, from the outside in:
//
//	deadline > cache > shared calls > chain of models >
//	  quality latch > latches > retry > re-ask > negotiation >
//	  not-before gate > breaker > bulkhead > attempt timeout > endpoint
//
// Retrying stands outside of the breaker, so that every attempt is one of its
// samples and an open breaker ends the retries. It is safe for concurrent use.
type Client struct {
	cfg    Config
	models []*backend
	top    Completer
	count  *counters
}

// backend is one model with everything that belongs to it alone.
type backend struct {
	Model
	attempt time.Duration // of one HTTP request
	inner   innermost
	breaker *breaker
	gate    *notBefore
	latch   *latch
	quality *quality
	seen    *observed
	stack   Completer
}

// innermost is what makes one HTTP request, with what surrounds its kind.
type innermost struct {
	Completer
	negotiated   func(Completer) Completer
	capabilities func() Capabilities
	host         string
}

// New makes a Client. It calls nothing. The error names every setting that cannot
// work.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	return newClient(cfg, func(m Model) (innermost, error) {
		e, err := newEndpoint(m, cfg)
		if err != nil {
			return innermost{}, err
		}
		return innermost{e, e.negotiated, e.Capabilities, e.base.Host}, nil
	})
}

// newClient builds the stack over whatever makes the requests.
func newClient(cfg Config, inner func(Model) (innermost, error)) (*Client, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	c := &Client{cfg: cfg, count: newCounters()}
	bulkheads := map[string]*bulkhead{}
	retries := newRetryBudget(cfg.RetryShare)
	byName := map[string]*backend{}
	for _, m := range cfg.Models {
		in, err := inner(m)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if bulkheads[in.host] == nil {
			bulkheads[in.host] = newBulkhead(cfg.Parallel, cfg.ParallelWait)
		}
		b := &backend{
			Model: m, attempt: cfg.Attempt, inner: in, breaker: newBreaker(cfg), gate: &notBefore{}, latch: newLatch(cfg),
			quality: newQuality(cfg), seen: &observed{},
		}
		b.stack = b.build(cfg, bulkheads[in.host], retries, c.count)
		c.models = append(c.models, b)
		byName[m.Name] = b
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	next := withChain(byName, c.models[0].Name, cfg.Fallbacks)
	next = withSharing(next, cfg.Deadline)
	next = withCache(next, c.models[0].Name, cfg.CacheTTL, cfg.CacheEntries)
	c.top = withDeadline(next, cfg.Deadline)
	return c, nil
}

// build puts the decorators of one model around its endpoint.
func (b *backend) build(cfg Config, bulk *bulkhead, retries *retryBudget, count *counters) Completer {
	next := withAttempt(b.inner, cfg.Attempt)
	next = b.seen.watch(next, b.Model, count)
	next = withSecondLook(next, b.breaker, b.gate)
	next = withBulkhead(next, bulk)
	next = withBreaker(next, b.breaker)
	next = withNotBefore(next, b.gate)
	next = b.inner.negotiated(next)
	next = withReask(next, cfg, count)
	next = withRetry(next, cfg, retries, count)
	next = withLatch(next, b.latch)
	next = withQuality(next, b.quality)
	return next
}

// Complete implements Completer.
func (c *Client) Complete(ctx context.Context, req Request) (Reply, error) {
	began := time.Now()
	reply, err := c.top.Complete(ctx, req)
	reply.Took = time.Since(began)
	c.count.note(reply, err)
	return reply, err
}

// Names are the configured models, in their order; the first is the default.
func (c *Client) Names() []string {
	out := make([]string, len(c.models))
	for i, m := range c.models {
		out[i] = m.Name
	}
	return out
}

// Close releases idle connections. Calls under way end as they would.
func (c *Client) Close() {
	if idle, ok := c.cfg.Doer.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

// ours is err as an *Error, nil when it is none of ours.
func ours(err error) *Error {
	var fail *Error
	if errors.As(err, &fail) {
		return fail
	}
	return nil
}

// isContext reports whether an error is only that a context has ended.
func isContext(err error) bool {
	return ours(err) == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
