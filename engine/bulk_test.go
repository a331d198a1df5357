package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// slowStore delays every row that a bulk read reads.
type slowStore struct {
	*memory.Store
	each  time.Duration
	reads atomic.Int64 // bulk reads in progress
	most  atomic.Int64 // the maximum number at the same time
	hits  atomic.Int64 // decisions returned
}

func slowly[T any](ctx context.Context, s *slowStore, all iter.Seq2[T, error], given *atomic.Int64) iter.Seq2[T, error] {
	if !store.IsBulkRead(ctx) {
		return all
	}
	return func(yield func(T, error) bool) {
		s.most.Store(max(s.most.Load(), s.reads.Add(1)))
		defer s.reads.Add(-1)
		for v, err := range all {
			time.Sleep(s.each) //nolint:forbidigo // in synctest time
			given.Add(1)
			if !yield(v, err) {
				return
			}
		}
	}
}

func (s *slowStore) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	return slowly(ctx, s, s.Store.EventsAfter(ctx, q), new(atomic.Int64))
}

func (s *slowStore) Decisions(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.PlacedEvent, error] {
	return slowly(ctx, s, s.Store.Decisions(ctx, q), &s.hits)
}

func (s *slowStore) Figures(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.Figures, error] {
	return slowly(ctx, s, s.Store.Figures(ctx, q), &s.hits)
}

func (s *slowStore) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return slowly(ctx, s, s.Store.Events(ctx, q), new(atomic.Int64))
}

func (s *slowStore) Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error] {
	return slowly(ctx, s, s.Store.Instances(ctx, q), new(atomic.Int64))
}

// slowBench returns a bench for use in a synctest bubble, with two instances of some events each.
func slowBench(t *testing.T, permits int) (b *bench, s *slowStore, id string) {
	t.Helper()
	s = &slowStore{Store: memory.New()}
	b = newBenchWith(t, s, nil, func(c *engine.Config) { c.BulkReads = permits })
	b.define(operator, simple)
	b.start(other, "simple", `{}`)
	id = b.start(agent, "simple", `{}`).ID
	for range 50 {
		b.refused(agent, id, "nonsense", `{}`, "illegal_action")
	}
	return b, s, id
}

// A principal that reads endlessly on many connections takes half of the permits, and takes turns on a
// single one. The honest caller is served next and never gets busy, and its moves never wait for a reader.
func TestBulkReadsTakeTurns(t *testing.T) {
	pool() // started outside the bubbles, because it outlives them
	noises := map[string]func(b *bench, id string) error{
		"events": func(b *bench, _ string) error {
			_, err := b.Tail(context.Background(), agent, engine.TailRequest{Limit: 1000})
			return err
		},
		"decisions": func(b *bench, _ string) error {
			_, err := b.Decisions(context.Background(), agent, engine.DecisionsRequest{Limit: 1000})
			return err
		},
		"statistics": func(b *bench, _ string) error {
			_, err := b.Statistics(context.Background(), agent, engine.StatisticsRequest{})
			return err
		},
		"history": func(b *bench, id string) error {
			_, err := b.History(context.Background(), agent, engine.HistoryRequest{ID: id, Limit: 1000})
			return err
		},
		"timeline": func(b *bench, id string) error {
			_, err := b.Timeline(context.Background(), agent, engine.HistoryRequest{ID: id, Limit: 1000})
			return err
		},
	}
	for _, permits := range []int{1, 2} {
		for name, noise := range noises {
			t.Run(fmt.Sprintf("%s, %d permits", name, permits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b, s, id := slowBench(t, permits)
					s.each = time.Millisecond
					callers := int64(20)
					if name == "statistics" {
						callers = 300 // more than may wait
					}
					var busy, ended atomic.Int64
					for range callers {
						go func() {
							if err := noise(b, id); engine.CodeOf(err) == engine.CodeBusy {
								busy.Add(1)
							} else if err != nil {
								t.Error(err)
							}
							ended.Add(1)
						}()
					}
					synctest.Wait()
					if got := s.most.Load(); got != 1 {
						t.Errorf("one principal reads %d times at once", got)
					}
					began := time.Now()
					if _, err := b.Advance(t.Context(), other, engine.AdvanceRequest{ID: b.firstOf(other), Action: "nonsense"}); err != nil {
						t.Error(err)
					}
					if _, err := b.Status(t.Context(), other, b.firstOf(other)); err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took != 0 {
						t.Errorf("a move waited %s for readers", took)
					}
					for range 3 {
						began = time.Now()
						if _, err := b.Statistics(t.Context(), other, engine.StatisticsRequest{}); err != nil {
							t.Fatalf("the honest caller: %v", err)
						}
						// One turn of the noisy principal, and its own few events.
						if took := time.Since(began); took > 40*time.Millisecond {
							t.Errorf("the honest caller waited %s, more than a turn", took)
						}
					}
					for ended.Load() < callers {
						time.Sleep(time.Second) //nolint:forbidigo // in synctest time
					}
					if got := busy.Load(); (got > 0) != (callers == 300) || got == callers {
						t.Errorf("%d of %d noisy calls are busy", got, callers)
					}
				})
			})
		}
	}
}

// firstOf returns the first instance of a principal.
func (b *bench) firstOf(p engine.Principal) string {
	for inst, err := range b.store.Instances(b.t.Context(), store.InstanceQuery{Owner: p.ID}) {
		if err != nil {
			b.t.Fatal(err)
		}
		return inst.ID
	}
	b.t.Fatal("no instance of " + p.ID)
	return ""
}

// pages reads a list to its end, page by page. It returns the size of each page and all ids.
func pages(t *testing.T, next func(cursor string) (ids []string, after string)) (sizes []int, all []string) {
	t.Helper()
	cursor := ""
	for {
		ids, after := next(cursor)
		sizes, all = append(sizes, len(ids)), append(all, ids...)
		if after == "" {
			return sizes, all
		}
		if after == cursor || len(sizes) > 1000 {
			t.Fatalf("the list does not go on behind %q", cursor)
		}
		cursor = after
	}
}

// lists returns all paged lists, each as a function of its cursor.
func (b *bench) lists(id string) map[string]func(cursor string) ([]string, string) {
	number := func(cursor string) (n int64) {
		_, _ = fmt.Sscan(cursor, &n)
		return n
	}
	text := func(n int64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	fail := func(err error) {
		if err != nil {
			b.t.Fatal(err)
		}
	}
	ctx := b.t.Context()
	return map[string]func(cursor string) ([]string, string){
		"events": func(cursor string) (ids []string, after string) {
			r, err := b.Tail(ctx, agent, engine.TailRequest{After: number(cursor), Limit: 1000})
			fail(err)
			for _, ev := range r.Events {
				ids = append(ids, fmt.Sprint(ev.Position))
			}
			if r.More {
				after = text(r.Next)
			}
			return ids, after
		},
		"history": func(cursor string) (ids []string, after string) {
			r, err := b.History(ctx, agent, engine.HistoryRequest{ID: id, AfterSeq: number(cursor), Limit: 1000})
			fail(err)
			for _, d := range r.Decisions {
				ids = append(ids, fmt.Sprint(d.Seq))
			}
			return ids, text(r.NextAfter)
		},
		"timeline": func(cursor string) (ids []string, after string) {
			r, err := b.Timeline(ctx, agent, engine.HistoryRequest{ID: id, AfterSeq: number(cursor), Limit: 1000})
			fail(err)
			for _, d := range r.Events {
				ids = append(ids, fmt.Sprint(d.Seq))
			}
			return ids, text(r.NextAfter)
		},
		"decisions": func(cursor string) (ids []string, after string) {
			r, err := b.Decisions(ctx, agent, engine.DecisionsRequest{Cursor: cursor, Limit: 1000})
			fail(err)
			for _, d := range r.Decisions {
				ids = append(ids, d.Instance+fmt.Sprint(d.Seq))
			}
			return ids, r.NextCursor
		},
		"instances": func(cursor string) (ids []string, after string) {
			r, err := b.Instances(ctx, agent, engine.InstancesRequest{Cursor: cursor, Limit: 500})
			fail(err)
			for _, i := range r.Instances {
				ids = append(ids, i.ID)
			}
			return ids, r.NextCursor
		},
	}
}

// checkPages fails unless a list comes in several pages that contain each row exactly once.
func checkPages(t *testing.T, next func(string) ([]string, string), want int) {
	t.Helper()
	sizes, all := pages(t, next)
	if len(sizes) < 3 {
		t.Errorf("pages of %v: nothing ended them early", sizes)
	}
	seen := map[string]bool{}
	for _, id := range all {
		seen[id] = true
	}
	if len(all) != want || len(seen) != want {
		t.Errorf("%d of %d different ones, want %d", len(seen), len(all), want)
	}
}

// A page of large events ends early.
func TestPagesAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, simple)
	const n = 40
	large := json.RawMessage(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 60<<10)))
	id := b.start(agent, "simple", `{}`).ID
	for range n {
		b.refused(agent, id, "nonsense", string(large), "illegal_action")
	}
	for range n {
		b.start(agent, "simple", string(large))
	}
	for name, next := range b.lists(id) {
		want := map[string]int{"events": 2*n + 1, "history": n + 1, "timeline": n + 1, "decisions": 2*n + 1, "instances": n + 1}[name]
		t.Run(name, func(t *testing.T) { checkPages(t, next, want) })
	}
}

// A page that takes long ends early, even if it finds little.
func TestPagesAreBoundedByTime(t *testing.T) {
	pool() // started outside the bubble, because it outlives it
	synctest.Test(t, func(t *testing.T) {
		b, s, id := slowBench(t, 1)
		for range 59 {
			b.start(agent, "simple", `{}`)
		}
		s.each = 10 * time.Millisecond
		for name, next := range b.lists(id) {
			want := map[string]int{"events": 110, "history": 51, "timeline": 51, "decisions": 110, "instances": 60}[name]
			checkPages(t, next, want)
		}
	})
}

// A search that finds nothing for a long time ends with a cursor; its pages together search everything.
func TestSparseSearchEndsWithACursor(t *testing.T) {
	pool() // started outside the bubble, because it outlives it
	synctest.Test(t, searchForLittle)
}

func searchForLittle(t *testing.T) {
	b := newBenchOn(t, &unfruitful{Store: memory.New()})
	b.define(operator, simple)
	id := b.start(agent, "simple", `{}`).ID
	b.refused(agent, id, "rare", `{}`, "illegal_action")
	for range 300 {
		b.refused(agent, id, "common", `{}`, "illegal_action")
	}
	sizes, all := pages(t, func(cursor string) (ids []string, after string) {
		r, err := b.Decisions(t.Context(), agent, engine.DecisionsRequest{Query: store.DecisionQuery{Action: "rare"}, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Decisions {
			ids = append(ids, d.Action)
		}
		return ids, r.NextCursor
	})
	if len(sizes) < 3 || len(all) != 1 {
		t.Errorf("pages of %v, found %v", sizes, all)
	}
}

// unfruitful takes longer than a page may each time it has searched some events.
type unfruitful struct{ *memory.Store }

func (s *unfruitful) Decisions(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.PlacedEvent, error] {
	if looked := q.OnScan; looked != nil {
		q.OnScan = func(position int64) bool {
			time.Sleep(260 * time.Millisecond) //nolint:forbidigo // longer than a page may take
			return looked(position)
		}
	}
	return s.Store.Decisions(ctx, q)
}
