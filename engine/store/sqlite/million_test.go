package sqlite_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/judge"
)

var millionOf = flag.Int("store.instances", 0, "compare a file with so many instances to a small one (make million)")

// TestMillion compares a file with many instances with a small one. An advance, a list page, a page of reviews and of
// decisions, and opening must not slow down as the file grows.
func TestMillion(t *testing.T) {
	if *millionOf == 0 {
		t.Skip("a measurement: make million")
	}
	full, small := filepath.Join(t.TempDir(), "gavel.db"), filepath.Join(t.TempDir(), "gavel.db")
	start := time.Now()
	generate(t, full, *millionOf)
	generate(t, small, few)
	info, err := os.Stat(full)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d instances, %d MiB, written in %s", *millionOf, info.Size()>>20, time.Since(start).Round(time.Second))
	table, missed := &rows{}, 0
	for _, g := range compare(t, full, small) {
		table.add("%s", g)
		if !g.reaches(g.atLeast) {
			missed++
		}
	}
	table.print("figure", "here", "at least", "aim", "")
	if missed > 0 {
		t.Errorf("%d figures are above what they may be", missed)
	}
}

// few is the number of instances in the small file: enough to fill a page of each list.
const few = 2000

// generate writes a store of n instances through the Store API. Every second one is moved or refused after its start;
// every hundredth waits for a review.
func generate(tb testing.TB, path string, n int) {
	tb.Helper()
	s := openAt(tb, path)
	ctx := context.Background()
	if _, err := s.WriterConn().ExecContext(ctx, "PRAGMA synchronous = OFF"); err != nil { // durability does not matter here
		tb.Fatal(err)
	}
	const workers = 256 // fills a batch
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				if err := grow(ctx, tb, s, i); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		tb.Fatal(err)
	}
}

func grow(ctx context.Context, tb testing.TB, s *sqlite.Store, i int) error {
	tb.Helper()
	inWorkflow := func(e *record.Event) { e.Workflow = fmt.Sprint("doc-", i%10) }
	c := storetest.Start(tb, storetest.ID(i), `{"title":"a document","n":0}`, inWorkflow, storetest.By(fmt.Sprint("local:", i%1000)))
	if i%100 == 0 {
		c.Reviews = []store.Review{storetest.Review(i, c.Next)}
	}
	if err := s.Commit(ctx, c); err != nil || i%2 == 0 {
		return err
	}
	if i%7 == 0 {
		return s.Commit(ctx, storetest.Refuse(tb, c.Next, "submit"))
	}
	return s.Commit(ctx, storetest.Advance(tb, c.Next, "reviewing", `{"n":1}`))
}

// compare measures both files alternately.
func compare(t *testing.T, full, small string) []target {
	t.Helper()
	var opened [2]figures
	for range 20 {
		for k, path := range []string{full, small} {
			start := time.Now()
			s := openAt(t, path)
			opened[k].took = append(opened[k].took, time.Since(start))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, s := openAt(t, full), openAt(t, small)
	defer f.Close()
	defer s.Close()
	ratio := func(name string, do func(s *sqlite.Store, instances int)) target {
		a, b := turns(func(_, _ int) { do(f, *millionOf) }, func(_, _ int) { do(s, few) })
		return bounded(name, a, b, 2, 1.2)
	}
	// A page has 20 rows, each in a different place of a big file. A scan would be hundreds of times slower.
	pageRatio := func(name string, do func(s *sqlite.Store, instances int)) target {
		g := ratio(name, do)
		g.atLeast, g.aim = 10, 2
		return g
	}
	targets := []target{
		ratio("advance of any instance", func(s *sqlite.Store, instances int) {
			c := contender{store: s, commit: s.Commit}
			c.advancing(t, func(int) string { return storetest.ID(rand.IntN(instances)) })(0, 0)
		}),
		pageRatio("list page of a workflow", func(s *sqlite.Store, instances int) {
			drain(t, s.Instances(t.Context(), store.InstanceQuery{
				Workflow: "doc-3", Limit: 20, BeforeID: storetest.ID(few/2 + rand.IntN(instances-few/2)),
			}))
		}),
		pageRatio("page of reviews of a workflow", func(s *sqlite.Store, _ int) {
			drain(t, s.Reviews(t.Context(), store.ReviewQuery{Workflow: "doc-0", Limit: 20}))
		}),
	}
	searches := map[string]store.DecisionQuery{
		"page of decisions of a workflow":        {Workflow: "doc-3", Limit: 20},
		"page of decisions with a word":          {Text: "missing", Limit: 20},
		"page of decisions of an instance":       {Instance: storetest.ID(7), Limit: 20},
		"page of rejections of a workflow":       {Workflow: "doc-3", Outcome: judge.Reject, Limit: 20},
		"page of decisions of an hour long past": {Until: storetest.Epoch.Add(time.Hour), Limit: 20},
	}
	for _, name := range slices.Sorted(maps.Keys(searches)) {
		q := searches[name]
		targets = append(targets, pageRatio(name, func(s *sqlite.Store, _ int) { drain(t, s.Decisions(t.Context(), q)) }))
	}
	return append(targets, bounded("open", opened[0].micros(50), opened[1].micros(50), 2, 1.2))
}

func bounded(name string, full, small, atLeast, aim float64) target {
	const wall = "deeper trees and pages that no cache holds"
	name += ", p50: full / small"
	return target{name, full / small, atLeast, aim, true, fmt.Sprintf(" (%.0f and %.0f µs)", full, small), wall}
}

// turns measures two operations alternately in short windows, and returns the p50 of each in µs.
func turns(one, other func(w, i int)) (a, b float64) {
	var f, e figures
	for range 8 {
		f.during(250*time.Millisecond, 1, one)
		e.during(250*time.Millisecond, 1, other)
	}
	return f.micros(50), e.micros(50)
}

func drain[T any](tb testing.TB, all func(yield func(T, error) bool)) {
	tb.Helper()
	for _, err := range all {
		if err != nil {
			tb.Error(err)
		}
	}
}

// The generated instances are valid. This also runs with the ordinary tests.
func TestGenerate(t *testing.T) {
	path := newPath(t)
	generate(t, path, 300)
	s := openAt(t, path)
	defer s.Close()
	var ids []string
	for inst, err := range s.Instances(t.Context(), store.InstanceQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := record.Verify(s.Events(t.Context(), store.EventQuery{Instance: inst.ID})); err != nil {
			t.Error(err)
		}
		ids = append(ids, inst.ID)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 300 {
		t.Errorf("%d instances, want 300", len(ids))
	}
}
