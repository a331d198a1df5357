package llm

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"
)

// cache keeps well-formed replies by the identity of the question, the least
// recently used ones first to go. A failure is never kept: the next caller may have
// better luck, and nobody's garbage is served twice.
type cache struct {
	ttl  time.Duration
	most int

	mu      sync.Mutex
	entries map[string]*list.Element
	recent  *list.List // of *cached, the most recently used first
}

type cached struct {
	key   string
	reply Reply
	until time.Time
}

// withCache answers questions that were answered before. A negative ttl is no cache.
func withCache(next Completer, first string, ttl time.Duration, most int) Completer {
	if ttl < 0 {
		return next
	}
	c := &cache{ttl: ttl, most: most, entries: map[string]*list.Element{}, recent: list.New()}
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Key == "" {
			return next.Complete(ctx, req)
		}
		key := keyOf(req, first)
		if reply, ok := c.get(key); ok {
			reply.CacheHit, reply.Shared, reply.Calls, reply.Usage, reply.CostUSD = true, false, 0, nil, nil
			return reply, nil
		}
		reply, err := next.Complete(ctx, req)
		if err == nil {
			c.put(key, reply.clone())
		}
		return reply, err
	})
}

// keyOf is the identity of a question to a model.
func keyOf(req Request, first string) string {
	name := req.Model
	if name == "" {
		name = first
	}
	return name + "\x00" + req.Key
}

func (c *cache) get(key string) (Reply, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return Reply{}, false
	}
	kept := e.Value.(*cached) //nolint:forcetypeassert // the list holds nothing else
	if !time.Now().Before(kept.until) {
		c.drop(e)
		return Reply{}, false
	}
	c.recent.MoveToFront(e)
	return kept.reply.clone(), true
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

func (c *cache) put(key string, reply Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[key]; ok {
		c.drop(e)
	}
	c.entries[key] = c.recent.PushFront(&cached{key: key, reply: reply, until: time.Now().Add(c.ttl)})
	if c.recent.Len() > c.most {
		c.drop(c.recent.Back())
	}
}

func (c *cache) drop(e *list.Element) {
	delete(c.entries, e.Value.(*cached).key) //nolint:forcetypeassert // the list holds nothing else
	c.recent.Remove(e)
}
