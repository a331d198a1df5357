package engine

import (
	"context"
	"iter"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Waiting returns the number of scopes in which a request has a turn or waits for one.
func (e *Engine) Waiting() int {
	n := 0
	for _, w := range []*scopeLocks{e.keys, e.guards, e.retries} {
		w.mu.Lock()
		n += len(w.m)
		w.mu.Unlock()
	}
	return n
}

// Effect describes the external effect of a move.
func (e *Engine) Effect(move record.Event) string { return describeEffect(move, e.cfg.ReadOnlySources) }

// Held returns the number of events that a feed holds, and their size.
func (f *Feed) Held() (events, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events), f.bytes
}

// NewFeed returns an empty feed.
func (e *Engine) NewFeed() *Feed { return newFeed(e) }

// Read reads new events without a follower.
func (f *Feed) Read(ctx context.Context) (int64, error) { return f.readNew(ctx) }

// Forget drops all held events.
func (f *Feed) Forget() { f.dropAll() }

// LagOf returns the lag of a follower that has everything up to a position.
func (f *Feed) LagOf(position int64) FeedLag { return f.lagOf(position) }

// Count counts n events.
func (b *BulkRead) Count(ctx context.Context, n int) (*int, error) {
	return b.countEvents(ctx, "count", func(yield func(store.PlacedEvent, error) bool) {
		for range n {
			if !yield(store.PlacedEvent{}, nil) {
				return
			}
		}
	})
}

// SearchShared returns the decisions that an agent sees if the given workflows are shared.
func SearchShared(ctx context.Context, e *Engine, p Principal, q store.DecisionQuery, shared ...string) iter.Seq2[store.PlacedEvent, error] {
	return e.searchScoped(ctx, sight{p, shared}, q)
}
