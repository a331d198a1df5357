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
	callers map[string]*demandOf
}

type demandOf struct {
	running int       // requests under way
	worked  time.Time // when the endpoint last worked on one
}

func newDemand() *demand { return &demand{callers: map[string]*demandOf{}} }

// wrapWatch notes for whom the endpoint works.
func (d *demand) wrapWatch(next Completer) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		d.begin(req.Caller)
		worked := true // a panic says nothing else
		defer func() { d.end(req.Caller, worked) }()
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

func (d *demand) begin(caller string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.callers[caller]
	if c == nil {
		if len(d.callers) >= maxCallers {
			d.evict()
		}
		c = &demandOf{}
		d.callers[caller] = c
	}
	c.running++
}

func (d *demand) end(caller string, worked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.callers[caller]
	c.running--
	if worked {
		c.worked = time.Now()
	}
}

// isIdle reports whether the host works for nobody.
func (d *demand) isIdle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.callers {
		if c.running > 0 {
			return false
		}
	}
	return true
}

// evict drops who has taken no part in anything, or else who did so longest ago.
func (d *demand) evict() {
	oldest, found := "", false
	for name, c := range d.callers {
		switch {
		case c.running > 0:
		case time.Since(c.worked) >= partInQuota:
			delete(d.callers, name)
		case !found || c.worked.Before(d.callers[oldest].worked):
			oldest, found = name, true
		}
	}
	if len(d.callers) >= maxCallers && found {
		delete(d.callers, oldest)
	}
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
	c := d.callers[caller]
	return c != nil && (c.running > 0 || !c.worked.IsZero() && time.Since(c.worked) < within)
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
