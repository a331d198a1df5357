//go:build unix

package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/modules/postgres"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

var benchRounds = flag.Int("pg.rounds", 0, "measure commits so many times (make bench-postgres)")

type committer interface {
	Commit(ctx context.Context, c store.Commit) error
}

// contender is a way to commit: by one process or several.
type contender struct {
	name  string
	by    []committer
	insts []record.Instance
	rates []float64
}

// leastGain is the minimum gain of grouped commits over one transaction per commit.
const leastGain = 1.8

// TestBenchPostgres measures 64 writers, each with its own instance. It compares grouped commits with one transaction
// per commit, positions from the counter with a sequence, and one process with two, alternating with SQLite.
func TestBenchPostgres(t *testing.T) {
	if *benchRounds == 0 {
		t.Skip("a measurement: make bench-postgres")
	}
	server := pgtest.Shared(t)
	open := func(schema string, counted bool) *opened {
		s := openAt(t, server.URL, schema)
		t.Cleanup(func() { _ = s.Close() })
		if !counted {
			if err := s.Uncount(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	two, twoUncounted := newSchema(t), newSchema(t)
	plain, err := postgres.NewPlain(t.Context(), open(newSchema(t), true).Store, server.URL, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	lite, err := sqlite.Open(t.Context(), sqlite.Config{Path: t.TempDir() + "/gavel.db"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lite.Close() })
	all := []*contender{
		{name: "each in a transaction, on 64 connections", by: []committer{plain}},
		{name: "grouped, one process", by: []committer{open(newSchema(t), true)}},
		{name: "grouped, two processes", by: []committer{open(two, true), open(two, true)}},
		{name: "grouped, one process, positions from a sequence", by: []committer{open(newSchema(t), false)}},
		{name: "grouped, two processes, positions from a sequence", by: []committer{open(twoUncounted, false), open(twoUncounted, false)}},
		{name: "SQLite", by: []committer{lite}},
	}
	for range *benchRounds {
		for _, c := range all {
			c.commitFor(t, 3*time.Second)
		}
	}
	fmt.Printf("%-52s %10s   %s\n", "64 writers", "commits/s", "/ each in a transaction: median, least and most of the rounds")
	for _, c := range all {
		gains := slices.Clone(c.rates)
		for i := range gains {
			gains[i] /= all[0].rates[i]
		}
		slices.Sort(gains)
		median := gains[len(gains)/2]
		fmt.Printf("%-52s %10.0f   %.2f (%.2f to %.2f)\n", c.name, slices.Sorted(slices.Values(c.rates))[len(c.rates)/2], median, gains[0], gains[len(gains)-1])
		if c == all[1] && median < leastGain {
			t.Errorf("%s: %.2f of the rate of transactions, want at least %g", c.name, median, leastGain)
		}
	}
}

// commitFor records the commit rate of 64 writers.
func (c *contender) commitFor(t *testing.T, d time.Duration) {
	t.Helper()
	const writers = 64
	each := func(do func(i int) error) {
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				if err := do(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if c.insts == nil {
		c.insts = make([]record.Instance, writers)
		each(func(i int) error {
			first := storetest.Start(t, storetest.ID(i), `{}`)
			c.insts[i] = first.Next
			return c.by[i%len(c.by)].Commit(context.Background(), first)
		})
	}
	var n atomic.Int64
	start := time.Now()
	each(func(i int) error {
		for time.Since(start) < d {
			next := storetest.Advance(t, c.insts[i], "reviewing", `{"n":1}`)
			if err := c.by[i%len(c.by)].Commit(context.Background(), next); err != nil {
				return err
			}
			c.insts[i] = next.Next
			n.Add(1)
		}
		return nil
	})
	c.rates = append(c.rates, float64(n.Load())/time.Since(start).Seconds())
}
