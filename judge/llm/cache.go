package llm

import (
	"cmp"
	"context"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// cached is a reply with the time from which it no longer counts.
type cached struct {
	reply Reply
	until time.Time
}

// withCache answers questions that were answered before; the least recently used ones go
// first. A failure is never cached: the next caller may have better luck. A negative ttl
// is no cache. (lru's own expiry needs a goroutine that nothing ends.)
func withCache(next Completer, first string, ttl time.Duration, entries int) Completer {
	known, err := lru.New[string, cached](entries)
	if ttl < 0 || err != nil {
		return next
	}
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Key == "" {
			return next.Complete(ctx, req)
		}
		key := keyOf(req, first)
		if c, ok := known.Get(key); ok && time.Now().Before(c.until) {
			reply := c.reply.clone()
			reply.CacheHit, reply.Shared, reply.Calls, reply.Usage, reply.CostUSD = true, false, 0, nil, nil
			return reply, nil
		}
		reply, err := next.Complete(ctx, req)
		if err == nil {
			known.Add(key, cached{reply.clone(), time.Now().Add(ttl)})
		}
		return reply, err
	})
}

// keyOf is the identity of a question to a model.
func keyOf(req Request, first string) string {
	return cmp.Or(req.Model, first) + "\x00" + req.Key
}

// clone is a copy that shares nothing: what one caller does to a reply must not be
// seen by the next.
func (r Reply) clone() Reply {
	a := &r.Answer
	a.Criteria, a.Violations, a.Suggestions = slices.Clone(a.Criteria), slices.Clone(a.Violations), slices.Clone(a.Suggestions)
	if r.Usage != nil {
		used := *r.Usage
		r.Usage = &used
	}
	if r.CostUSD != nil {
		cost := *r.CostUSD
		r.CostUSD = &cost
	}
	return r
}
