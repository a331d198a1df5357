package engine

import (
	"context"
	"iter"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Waiting counts the scopes in which somebody has a turn or waits for one.
func (e *Engine) Waiting() int {
	n := 0
	for _, w := range []*waiters{e.keys, e.guards, e.overtaken} {
		w.mu.Lock()
		n += len(w.m)
		w.mu.Unlock()
	}
	return n
}

// Effect says what a move did outside.
func (e *Engine) Effect(move record.Event) string { return describeEffect(move, e.cfg.ReadOnlySources) }

// Held is how many events a feed holds, and how large they are.
func (f *Feed) Held() (events, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events), f.bytes
}

// NewFeed returns a feed that holds nothing.
func (e *Engine) NewFeed() *Feed { return newFeed(e) }

// Read takes in what was committed, without anybody who follows.
func (f *Feed) Read(ctx context.Context) (int64, error) { return f.readNew(ctx) }

// Forget drops all that is held.
func (f *Feed) Forget() { f.dropAll() }

// LagOf is how far behind a follower is that has everything up to a position.
func (f *Feed) LagOf(position int64) FeedLag { return f.lagOf(position) }

// Count counts so many events.
func (b *BulkRead) Count(ctx context.Context, n int) (*int, error) {
	return b.countEvents(ctx, "count", func(yield func(store.PlacedEvent, error) bool) {
		for range n {
			if !yield(store.PlacedEvent{}, nil) {
				return
			}
		}
	})
}

// SearchShared finds the decisions that an agent sees where workflows are shared.
func SearchShared(ctx context.Context, e *Engine, p Principal, q store.DecisionQuery, shared ...string) iter.Seq2[store.PlacedEvent, error] {
	return e.searchScoped(ctx, sight{p, shared}, q)
}
