package llm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// Client asks models and handles all their failures. It is a stack of decorators, outermost first:
//
//	deadline > cache > shared calls > bill > chain of models >
//	  attribution > quality latch > watch of outages > latches > breaker > lateness > retry > re-ask > negotiation >
//	  not-before gate > allowance of the caller > place > attempt timeout > endpoint
//
// The breaker counts questions, so a question that succeeds after a retry is a success. A Client is safe for
// concurrent use.
type Client struct {
	cfg    Config
	models []*backend
	top    Completer
	count  *counters
}

type backend struct {
	Model
	inner   innermost
	breaker *breaker
	gate    *notBefore
	latch   *latch
	quality *quality
	late    *lateness
	outage  outage
	seen    *requestLog
	stack   Completer
}

type innermost struct {
	Completer
	negotiated   func(Completer) Completer
	capabilities func() Capabilities
	host         string
}

// New returns a Client. It sends no requests. The error lists all invalid settings.
func New(cfg Config) (*Client, error) {
	return newClient(cfg, func(m Model, cfg Config) (innermost, error) {
		e, err := newEndpoint(m, cfg)
		if err != nil {
			return innermost{}, err
		}
		return innermost{e, e.wrapNegotiate, e.Capabilities, e.base.Host}, nil
	})
}

func newClient(cfg Config, inner func(Model, Config) (innermost, error)) (*Client, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	c := &Client{cfg: cfg, count: newCounters()}
	hosts := map[string]*hostLimits{}
	retries := &retryBudget{}
	byName := map[string]*backend{}
	for _, m := range cfg.Models {
		in, err := inner(m, cfg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if hosts[in.host] == nil {
			hosts[in.host] = &hostLimits{slots: fairshare.New(fairshare.Config{Permits: cfg.Parallel}), allowances: newAllowances(cfg.CallerRequests, cfg.CallerTokens), demand: newDemand()}
		}
		b := &backend{
			Model: m, inner: in, breaker: newBreaker(cfg), gate: &notBefore{}, latch: &latch{},
			quality: newQuality(), seen: &requestLog{}, late: newLateness(hosts[in.host].demand.isIdle),
		}
		b.stack = b.buildCompleter(cfg, hosts[in.host], retries, c.count)
		c.models = append(c.models, b)
		byName[m.Name] = b
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	next := withBill(withChain(byName, c.models[0].Name, cfg.Fallbacks))
	next = withSharing(next, cfg.Deadline)
	next = withCache(next, c.models[0].Name, cfg.CacheTTL, cfg.CacheEntries)
	c.top = withDeadline(next, cfg.Deadline)
	return c, nil
}

func (b *backend) buildCompleter(cfg Config, h *hostLimits, retries *retryBudget, count *counters) Completer {
	next := withAttempt(b.inner, b.Timeout, cfg.wholeTime(b.Model))
	next = b.seen.wrapObserve(next, b.Model, count)
	next = h.demand.wrapWatch(next)
	next = withRecheck(next, b.breaker, b.gate)
	next = withSlot(next, h.slots)
	next = withAllowance(next, h.allowances)
	next = withNotBefore(next, b.gate)
	next = b.inner.negotiated(next)
	once := next
	next = withReask(next, cfg, count)
	next = withRetry(next, cfg, b.breaker, retries, count)
	next = withLateness(next, once, b.late)
	next = withBreaker(next, b.breaker)
	next = withLatch(next, b.latch)
	next = b.wrapOutage(next, cfg)
	next = withQuality(next, b.quality)
	next = h.demand.wrapAttribute(next)
	return next
}

type hostLimits struct {
	slots      *fairshare.Queue
	allowances *allowances
	demand     *demand
}

// Complete implements Completer.
func (c *Client) Complete(ctx context.Context, req Request) (Reply, error) {
	began := time.Now()
	reply, err := c.top.Complete(ctx, req)
	reply.Took = time.Since(began)
	c.count.count(reply, err)
	return reply, err
}

// Names returns the names of the configured models, in order; the first is the default.
func (c *Client) Names() []string {
	out := make([]string, len(c.models))
	for i, m := range c.models {
		out[i] = m.Name
	}
	return out
}

// Close closes idle connections. Running calls are not affected.
func (c *Client) Close() {
	if idle, ok := c.cfg.Doer.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

func asError(err error) *Error {
	if fail, ok := errors.AsType[*Error](err); ok {
		return fail
	}
	return nil
}

func isContext(err error) bool {
	return asError(err) == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
