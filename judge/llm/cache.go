package llm

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
)

type cacheEntry struct {
	reply Reply
	until time.Time
}

// withCache caches answers and evicts the least recently used ones. Failures are never cached, because the
// next attempt may succeed. A negative ttl disables the cache. (The lru package's own expiry needs a
// goroutine that cannot be stopped.)
func withCache(next Completer, first string, ttl time.Duration, entries int) Completer {
	cache, err := lru.New[string, cacheEntry](entries)
	if ttl < 0 || err != nil {
		return next
	}
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Key == "" {
			return next.Complete(ctx, req)
		}
		key := keyOf(req, first)
		if c, ok := cache.Get(key); ok && time.Now().Before(c.until) {
			reply := c.reply.clone()
			reply.CacheHit, reply.Shared, reply.Calls, reply.Usage, reply.CostUSD = true, false, 0, nil, nil
			return reply, nil
		}
		reply, err := next.Complete(ctx, req)
		if err == nil && (req.Keep == nil || req.Keep(reply.Answer)) {
			cache.Add(key, cacheEntry{reply.clone(), time.Now().Add(ttl)})
		}
		return reply, err
	})
}

func keyOf(req Request, first string) string {
	return fmt.Sprint(cmp.Or(req.Model, first), "\x00", req.Alone, "\x00", req.Key)
}

// clone returns a deep copy, so that callers cannot see each other's changes.
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

type sharedCall struct {
	reply    Reply
	err      error
	panicked any
}

// withSharing lets callers that ask the same question concurrently wait for one call. No caller owns the
// call: it continues after the caller that started it leaves. It ends slightly before the deadline of that
// caller, so that the caller gets the call's own error. Callers that joined later still have time then, and
// ask again.
func withSharing(next Completer, limit time.Duration) Completer {
	var calls singleflight.Group
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Key == "" {
			return next.Complete(ctx, req)
		}
		left := req.timeOf(limit)
		for end := time.Now().Add(left - left/100); ; {
			began := false
			done := calls.DoChan(keyOf(req, ""), func() (any, error) {
				began = true
				return runShared(context.WithoutCancel(ctx), next, req, time.Until(end), limit), nil
			})
			var result singleflight.Result
			select {
			case result = <-done:
			case <-ctx.Done():
				return Reply{}, contextError(ctx)
			}
			call := result.Val.(*sharedCall) //nolint:forcetypeassert // the function returns nothing else
			if call.panicked != nil {
				panic(call.panicked) // in the caller's goroutine, which can recover, as without sharing
			}
			lacksTime := ClassOf(call.err) == ClassTimeout || ClassOf(call.err) == ClassBusy
			if !began && lacksTime && time.Now().Before(end) {
				continue
			}
			reply := call.reply.clone()
			reply.Shared = !began && call.err == nil
			return reply, call.err
		}
	})
}

func runShared(ctx context.Context, next Completer, req Request, limit, whole time.Duration) (call *sharedCall) {
	call = &sharedCall{}
	defer func() {
		if p := recover(); p != nil { // a panic in this goroutine would end the process
			call.panicked = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
		}
	}()
	call.reply, call.err = completeBefore(ctx, next, req, limit, deadlineError(whole))
	return call
}
