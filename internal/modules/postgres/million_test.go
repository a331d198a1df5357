//go:build unix

package postgres_test

import (
	"context"
	"flag"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

var millionOf = flag.Int("pg.instances", 0, "measure pages over so many instances (make bench-postgres)")

// slowestPage limits the duration of a page, for any query and any amount of data.
const slowestPage = 50 * time.Millisecond

// fill writes n instances (storetest.Grown).
func fill(t testing.TB, s *opened, n int) {
	t.Helper()
	ctx := context.Background()
	finish, err := s.BeginFill(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const chunk = 10_000
	var made [2]chan [][]store.Commit // two goroutines encode alternately
	for k := range made {
		made[k] = make(chan [][]store.Commit)
		go func() {
			defer close(made[k])
			for first := k * chunk; first < n; first += len(made) * chunk {
				var all [][]store.Commit
				for i := first; i < min(n, first+chunk); i++ {
					all = append(all, storetest.Grown(t, i, n))
				}
				made[k] <- all
			}
		}()
	}
	for k := 0; ; k = (k + 1) % len(made) {
		all := <-made[k]
		if all == nil {
			break
		}
		if err := s.Fill(ctx, all); err != nil {
			t.Fatal(err)
		}
	}
	if err := finish(); err != nil {
		t.Fatal(err)
	}
}

// TestMany checks a store in which every list has more than one page.
func TestMany(t *testing.T) {
	storetest.SkipUnlessLong(t)
	s := unsynced(t, newSchema(t))
	defer s.Close()
	const n = 12_000
	fill(t, s, n)
	t.Run("no page reads a table from its beginning, nor sorts all that it could show", func(t *testing.T) { requirePlans(t, s, n) })
	t.Run("figures of whole blocks are kept, and counted again when something is removed", func(t *testing.T) { figuresOfBlocks(t, s) })
	t.Run("what was filled in verifies", func(t *testing.T) {
		for inst, err := range s.Instances(t.Context(), store.InstanceQuery{Limit: 100, BeforeID: storetest.ID(n / 2)}) {
			if err != nil {
				t.Fatal(err)
			}
			if err := record.Verify(s.Events(t.Context(), store.EventQuery{Instance: inst.ID})); err != nil {
				t.Error(err)
			}
		}
	})
}

// scans matches steps that read a whole table; sorts extracts the number of rows that a sort expects.
var (
	scans = regexp.MustCompile(`Seq Scan on (instances|contexts|events|reviews|snapshots)|(Hash|Merge) Join`)
	sorts = regexp.MustCompile(`^ *(?:->  )?Sort.* rows=(\d+)`)
)

// sortedAtMost is how many rows a page may sort: those of a block of positions.
const sortedAtMost = 8192

func isWide(step string) bool {
	found := sorts.FindStringSubmatch(step)
	if found == nil {
		return scans.MatchString(step)
	}
	n, err := strconv.Atoi(found[1])
	return err != nil || n > sortedAtMost
}

func requirePlans(t *testing.T, s *opened, n int) {
	t.Helper()
	last, err := s.LastPosition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pages := storetest.ListPages(n, last)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, plan := range plansOf(t, s, pages[name], last) {
			if slices.ContainsFunc(plan, isWide) {
				t.Errorf("%s:\n%s", name, strings.Join(plan, "\n"))
			}
		}
	}
}

// plansOf returns the plan steps of each query of a page.
func plansOf(t *testing.T, s *opened, q any, last int64) (all [][]string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Shared(t).Fast)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, page := range s.PagesOf(q, last, storetest.PageRows) {
		found, err := conn.Query(t.Context(), "EXPLAIN "+page.SQL, append([]any{pgx.QueryExecModeCacheDescribe}, page.Args...)...)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, append([]string{page.SQL}, plan...))
	}
	return all
}

// TestMillion measures pages over a million instances.
func TestMillion(t *testing.T) {
	if *millionOf == 0 {
		t.Skip("a measurement: make bench-postgres")
	}
	s := unsynced(t, newSchema(t))
	defer s.Close()
	start := time.Now()
	fill(t, s, *millionOf)
	last, err := s.LastPosition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d instances with %d events written in %s", *millionOf, last, time.Since(start).Round(time.Second))
	requirePlans(t, s, *millionOf)
	for _, when := range []string{"counted", "from what is kept"} {
		start := time.Now()
		storetest.Count(t, s.Figures(t.Context(), store.DecisionQuery{Workflow: "doc-3"}))
		t.Logf("figures of a workflow, %s: %s", when, time.Since(start).Round(time.Millisecond))
	}
	pages := storetest.ListPages(*millionOf, last)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		var took []time.Duration
		found := 0
		for range 21 {
			start := time.Now()
			found = storetest.ReadPage(t, s, pages[name])
			took = append(took, time.Since(start))
		}
		first := took[0]
		slices.Sort(took)
		t.Logf("%-60s %2d rows %8.2f ms, the first %8.2f ms", name, found, float64(took[len(took)/2].Microseconds())/1e3, float64(first.Microseconds())/1e3)
		if took[len(took)/2] > slowestPage {
			t.Errorf("%s: %s\n%s", name, took[len(took)/2], plansOf(t, s, pages[name], last))
		}
	}
}

func figuresOfBlocks(t *testing.T, s *opened) {
	t.Helper()
	hour := store.DecisionQuery{Since: storetest.Epoch.Add(time.Hour), Until: storetest.Epoch.Add(2 * time.Hour)}
	require := func(when string, all ...store.DecisionQuery) {
		t.Helper()
		for _, q := range all {
			storetest.RequireFigures(t, s, q)
		}
		if kept := s.KeptFigures(t); kept != 2 {
			t.Errorf("%s: figures of %d blocks are kept, want those of 2 that are full", when, kept)
		}
	}
	require("once", store.DecisionQuery{})
	require("from what is kept", store.DecisionQuery{Workflow: "doc-3"}, hour)
	for inst, err := range s.Instances(t.Context(), store.InstanceQuery{Workflow: "old", Status: record.Complete, Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), storetest.Truncate(t, inst, inst)); err != nil {
			t.Fatal(err)
		}
	}
	if kept := s.KeptFigures(t); kept != 1 {
		t.Errorf("figures of %d blocks are kept, and something of one was removed", kept)
	}
	require("after a removal", store.DecisionQuery{Workflow: "old"})
}
