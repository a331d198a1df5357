package llm

import (
	"context"
	"sync"
	"time"
)

// How long a caller that an endpoint has worked for counts as one that took part in a
// limit of that endpoint. A provider counts requests and tokens by the minute, the hour
// or the day, and credit until somebody pays.
const (
	partInOverload = time.Minute
	partInRate     = time.Hour
	partInQuota    = 24 * time.Hour
)

// demand knows for which callers a host has worked lately, so that nobody profits from
// a limit that it has helped to reach.
type demand struct {
	mu      sync.Mutex
	callers *callerMap[demandOf]
	running int // requests of all callers under way
}

type demandOf struct {
	running int       // requests under way
	worked  time.Time // when the endpoint last worked on one
}

func newDemand() *demand {
	return &demand{callers: newCallerMap(func() *demandOf { return &demandOf{} })}
}

// wrapWatch notes for whom the endpoint works.
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

func (d *demand) begin(caller string) *demandOf {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.callers.of(caller)
	c.running++
	d.running++
	return c
}

func (d *demand) end(c *demandOf, worked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.running--
	d.running--
	if worked {
		c.worked = time.Now()
	}
}

// isIdle reports whether the host works for no one.
func (d *demand) isIdle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running == 0
}

// tookPart reports whether a caller took part in a limit of the endpoint, which another
// of its requests has just met.
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

// wrapAttribute marks failures in which the caller took part.
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
		part := *fail
		part.CallerPart = true
		return Reply{}, &part
	})
}
