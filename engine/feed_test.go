package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// tailedStore counts the events read by tails, and the instances loaded for rendering.
type tailedStore struct {
	*memory.Store
	read, loads atomic.Int64
}

func (s *tailedStore) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		for ev, err := range s.Store.EventsAfter(ctx, q) {
			s.read.Add(1)
			if !yield(ev, err) {
				return
			}
		}
	}
}

func (s *tailedStore) Load(ctx context.Context, id string) (record.Instance, error) {
	if store.IsBulkRead(ctx) {
		s.loads.Add(1)
	}
	return s.Store.Load(ctx, id) //nolint:wrapcheck // what it counts for
}

func (b *bench) readFeed(f *engine.Feed) int64 {
	b.t.Helper()
	last, err := f.Read(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return last
}

// fed reads everything that a feed has after a position, page by page.
func (b *bench) fed(f *engine.Feed, p engine.Principal, req engine.TailRequest) (items []engine.FeedItem, pages int) {
	b.t.Helper()
	for {
		page, err := f.Page(b.t.Context(), p, req)
		if err != nil {
			b.t.Fatal(err)
		}
		items, pages = append(items, page.Items...), pages+1
		if req.After = page.Next; !page.More {
			return items, pages
		}
	}
}

const pinFlow = `{"name":"secret","sensitive":["/pin"],"initialState":"a","states":{"a":{"transitions":{"go":"a"}}}}`

// However many streams follow, each event is read once, and rendered once for all who see the same.
func TestAFeedReadsAndRendersOnce(t *testing.T) {
	t.Parallel()
	s := &tailedStore{Store: memory.New()}
	b := newBenchOn(t, s)
	b.define(operator, pinFlow)
	id := b.start(agent, "secret", `{"pin":"4711-0815"}`).ID
	f := b.NewFeed()
	from := b.readFeed(f)
	const events, streams = 20, 100
	for range events {
		b.moved(agent, id, "go", `{"pin":"4711-0815"}`, "a")
	}
	s.read.Store(0)
	s.loads.Store(0)
	var wg sync.WaitGroup
	for range 3 {
		b.readFeed(f)
	}
	for _, p := range []engine.Principal{agent, operator, auditor, other} {
		for range streams {
			wg.Go(func() {
				page, err := f.Page(t.Context(), p, engine.TailRequest{After: from})
				want := events
				if p == other {
					want = 0
				}
				if err != nil || len(page.Items) != want || page.More {
					t.Errorf("%s: %d events, %v", p.ID, len(page.Items), err)
				}
			})
		}
	}
	wg.Wait()
	if got := s.read.Load(); got != events {
		t.Errorf("%d events were read for %d streams, want %d", got, 4*streams, events)
	}
	if got := s.loads.Load(); got != 3*events { // for the owner, an operator and an auditor
		t.Errorf("%d renderings, want %d", got, 3*events)
	}
}

// A feed shows each caller exactly what Tail shows, even if a value in an already rendered event has
// become sensitive.
func TestFeedMatchesTail(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		b := newBenchOn(t, s)
		b.define(operator, named(simple, "simple"))
		b.define(operator, `{"name":"secret","initialState":"a","states":{"a":{"transitions":{"go":"a"}}}}`)
		b.define(agent, named(simple, "own"))
		f := b.NewFeed()
		from := b.readFeed(f)
		narrow := auditor
		narrow.Workflows = "sim*"
		ids := map[string]bool{"": true}
		compare := func() {
			t.Helper()
			last := b.readFeed(f)
			for _, p := range []engine.Principal{agent, other, operator, reviewer, auditor, narrow} {
				for id := range ids {
					for _, workflow := range []string{"", "secret"} {
						req := engine.TailRequest{After: from, Instance: id, Workflow: workflow, Limit: 1000}
						want, err := b.Tail(t.Context(), p, req)
						for err == nil && want.More { // pages end early on a busy machine
							rest := req
							rest.After = want.Next
							var more engine.TailResult
							more, err = b.Tail(t.Context(), p, rest)
							more.Events = append(want.Events, more.Events...)
							want = more
						}
						page, ferr := f.Page(t.Context(), p, req)
						if (err == nil) != (ferr == nil) && len(page.Items) > 0 {
							t.Fatalf("%s %+v: Tail says %v, the feed %v", p.ID, req, err, ferr)
						}
						if err != nil || ferr != nil {
							continue
						}
						if page.Next != last || len(page.Items) != len(want.Events) {
							t.Fatalf("%s %+v: %d events up to %d, want %d up to %d", p.ID, req, len(page.Items), page.Next, len(want.Events), last)
						}
						for i, item := range page.Items {
							var view any
							text, err := json.Marshal(want.Events[i])
							if err != nil {
								t.Fatal(err)
							}
							var got any
							if json.Unmarshal(text, &view) != nil || json.Unmarshal(item.JSON, &got) != nil || fmt.Sprint(got) != fmt.Sprint(view) || item.Position != want.Events[i].Position {
								t.Fatalf("%s: the feed shows\n%s\nTail shows\n%s", p.ID, item.JSON, text)
							}
						}
					}
				}
			}
		}
		for _, p := range []engine.Principal{agent, other} {
			for _, workflow := range []string{"simple", "secret", "own"} {
				if workflow == "own" && p == other {
					continue
				}
				id := b.start(p, workflow, `{"pin":"4711-0815"}`).ID
				ids[id] = true
				b.advance(p, id, "4711-0815", `{}`)
				b.checkpoint(p, id)
				b.advance(p, id, "go", `{"note":"4711-0815"}`)
				compare()
			}
		}
		b.define(operator, pinFlow)
		if _, err := b.Migrate(t.Context(), operator, engine.MigrateRequest{Workflow: "secret"}); err != nil {
			t.Fatal(err)
		}
		compare()
		for _, p := range []engine.Principal{agent, operator} {
			items, _ := b.fed(f, p, engine.TailRequest{After: from, Workflow: "secret"})
			for _, item := range items {
				if strings.Contains(string(item.JSON), "4711-0815") {
					t.Errorf("%s is shown what is sensitive by now: %s", p.ID, item.JSON)
				}
			}
		}
	})
}

// The content of a feed is limited. A stream that has fallen behind reads large pages from the store and
// misses nothing.
func TestLaggingStreamMissesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, simple)
	f := b.NewFeed()
	from := b.readFeed(f)
	id := b.start(agent, "simple", `{}`).ID
	large := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 60<<10))
	events := 160 // of 60 KiB: more than the feed holds
	if storetest.Long() {
		events = 400
	}
	for i := range events {
		b.advance(agent, id, "nonsense", large)
		if i%50 == 0 {
			b.readFeed(f)
		}
	}
	last := b.readFeed(f)
	if n, bytes := f.Held(); bytes > 8<<20 || n >= events {
		t.Errorf("%d events with %d bytes are held", n, bytes)
	}
	if lag := f.LagOf(from); lag.Events != int64(events)+1 || lag.Time <= 0 {
		t.Errorf("the lag of one that was sent nothing: %+v", lag)
	}
	if lag := f.LagOf(last); lag != (engine.FeedLag{}) {
		t.Errorf("the lag of one that was sent all: %+v", lag)
	}
	items, pages := b.fed(f, agent, engine.TailRequest{After: from})
	if len(items) != events+1 || pages < 10 {
		t.Fatalf("%d events on %d pages", len(items), pages)
	}
	for i, item := range items {
		if item.Position != from+int64(i)+1 {
			t.Fatalf("event %d is at %d", i, item.Position)
		}
	}
	f.Forget()
	if n, bytes := f.Held(); n != 0 || bytes != 0 {
		t.Errorf("forgotten, it holds %d events with %d bytes", n, bytes)
	}
}

// A follower that joins while the last one leaves does not get its cancellation error.
func TestAnEndedReadOfTheFeed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, pinFlow)
	f := b.NewFeed()
	from := b.readFeed(f)
	left, leave := context.WithCancel(t.Context())
	leave()
	if _, err := f.Read(left); err == nil {
		t.Fatal("a read of who has left went on: this test shows nothing")
	}
	if _, err := f.Page(t.Context(), agent, engine.TailRequest{After: from}); err != nil {
		t.Errorf("the next follower: %v", err)
	}
}

// wokenStore reports commits when the test triggers it.
type wokenStore struct {
	*memory.Store
	wake    chan struct{}
	stopped atomic.Int64
}

func (s *wokenStore) Subscribe(context.Context) (<-chan struct{}, func()) {
	return s.wake, func() { s.stopped.Add(1) }
}

// A feed reads as soon as its store reports a commit, without waiting for the next poll.
func TestAFeedIsWoken(t *testing.T) {
	t.Parallel()
	db := &wokenStore{Store: memory.New(), wake: make(chan struct{})}
	b := newBenchWith(t, db, nil, func(c *engine.Config) { c.FeedPoll = time.Hour })
	b.define(agent, walkFlow)
	follower := b.Feed().Follow(-1)
	db.wake <- struct{}{} // it has read once
	changed := follower.Changed()
	b.start(agent, "walk", `{}`)
	db.wake <- struct{}{}
	<-changed
	follower.Unfollow()
	if n := db.stopped.Load(); n != 1 {
		t.Errorf("stopped %d times", n)
	}
}
