package engine_test

import (
	"context"
	"encoding/json"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// crowdedStore has few processors for many requests, which wait in line; each takes its time on the clock.
type crowdedStore struct {
	*memory.Store
	processors chan struct{}
	busy       atomic.Bool // once the test has begun
	commits    atomic.Int64
}

const (
	readTime   = time.Millisecond
	commitTime = 2 * time.Millisecond
	pageEvents = 512 // in a page of a tail
)

func (s *crowdedStore) work(d time.Duration) {
	if s.busy.Load() {
		s.processors <- struct{}{}
		time.Sleep(d) //nolint:forbidigo // in synctest time
		<-s.processors
	}
}

func (s *crowdedStore) Load(ctx context.Context, id string) (record.Instance, error) {
	s.work(readTime)
	return s.Store.Load(ctx, id)
}

func (s *crowdedStore) Commit(ctx context.Context, c store.Commit) error {
	s.work(commitTime)
	s.commits.Add(1)
	return s.Store.Commit(ctx, c)
}

func (s *crowdedStore) Rules(ctx context.Context, after int64) (store.RuleHead, []store.Rule, error) {
	s.work(readTime)
	return s.Store.Rules(ctx, after)
}

func (s *crowdedStore) LastPosition(ctx context.Context) (int64, error) {
	s.work(readTime)
	return s.Store.LastPosition(ctx)
}

func (s *crowdedStore) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		n := 0
		for ev, err := range s.Store.EventsAfter(ctx, q) {
			if n%pageEvents == 0 {
				s.work(readTime)
			}
			if n++; !yield(ev, err) {
				return
			}
		}
	}
}

// Streams get their share next to writers. However many writers always wait for the store, and for however
// long, no stream is more than a second late. Each read of new events waits in the line a fixed number of
// times, and no stream waits in it separately.
func TestStreamsKeepUpWithWriters(t *testing.T) {
	pool() // started outside the bubble, because it outlives it
	synctest.Test(t, func(t *testing.T) {
		const writers, streams, lasts = 150, 16, 10 * time.Second
		db := &crowdedStore{Store: memory.New(), processors: make(chan struct{}, 2)}
		b := newBenchWith(t, db, nil, func(c *engine.Config) { c.Now = time.Now })
		b.define(operator, walkFlow)
		ids := make([]string, writers)
		for i := range ids {
			ids[i] = b.start(agent, "walk", `{}`).ID
		}
		begin, err := db.LastPosition(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		feed := b.Feed()
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		var sent, latest atomic.Int64
		var worst engine.FeedLag
		for range streams {
			go func() {
				follower := feed.Follow(begin)
				defer follower.Unfollow()
				for after := begin; ; {
					changed := follower.Changed()
					page, err := feed.Page(context.WithoutCancel(ctx), agent, engine.TailRequest{After: after})
					if err != nil {
						t.Error(err)
						return
					}
					after = page.Next
					follower.MarkSent(after)
					sent.Add(int64(len(page.Items)))
					for _, item := range page.Items {
						var ev struct{ Time time.Time }
						if err := json.Unmarshal(item.JSON, &ev); err != nil {
							t.Error(err)
						}
						for late := int64(time.Since(ev.Time)); ; {
							if was := latest.Load(); late <= was || latest.CompareAndSwap(was, late) {
								break
							}
						}
					}
					if page.More {
						continue
					}
					select {
					case <-changed:
					case <-ctx.Done():
						return
					}
				}
			}()
		}
		synctest.Wait() // until the streams wait for new events
		db.busy.Store(true)
		for _, id := range ids {
			go func() {
				for n := 0; ctx.Err() == nil; n++ {
					if _, err := b.Advance(context.WithoutCancel(ctx), agent, engine.AdvanceRequest{ID: id, Action: []string{"go", "back"}[n%2]}); err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
		for ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // in synctest time
			if lag := feed.Lag(); lag.Time > worst.Time {
				worst = lag
			}
		}
		synctest.Wait()
		late := time.Duration(latest.Load())
		t.Logf("%d commits in %v, %d events in %d streams, at most %v late; at most %+v at a look", db.commits.Load(), lasts, sent.Load(), streams, late, worst)
		if late > time.Second || worst.Time > time.Second {
			t.Errorf("a stream is %v late, and %v by its figure", late, worst.Time)
		}
		if least := db.commits.Load() * streams * 9 / 10; sent.Load() < least {
			t.Errorf("%d events were sent, fewer than %d", sent.Load(), least)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // in synctest time, until all have ended
	})
}
