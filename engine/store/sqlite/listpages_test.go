package sqlite_test

import (
	"maps"
	"slices"
	"sync"
	"testing"

	modernc "modernc.org/sqlite"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// A list page reads about as much in a large store as in a small one, for every kind of list.
func TestListsReadOnlyTheirPage(t *testing.T) {
	storetest.SkipUnlessLong(t)
	const few, many = 1000, 300_000
	small, large := fillStore(t, few), fillStore(t, many)
	smallPages, largePages := listPages(t, small, few), listPages(t, large, many)
	for _, name := range slices.Sorted(maps.Keys(largePages)) {
		before, after := pagesRead(t, small, smallPages[name]), pagesRead(t, large, largePages[name])
		t.Logf("%-60s %4d pages of %d instances, %4d of %d", name, before, few, after, many)
		// Each row is at a different place in trees that are one level deeper. A filter without its own index skips
		// the entries of another index, of which a page of the file holds more than 32. Decisions are examined one by
		// one, two pages each, within at most one block of positions.
		limit := before + 5*storetest.PageRows
		switch q := largePages[name].(type) {
		case store.InstanceQuery:
			if q.Owner != "" {
				limit += many / 2 / 32
			}
		case store.DecisionQuery:
			limit = 2 * 4096
		case store.TailQuery: // events of others are skipped one by one
			if q.Owner != "" || q.Workflow != "" {
				continue
			}
		}
		if after > limit {
			t.Errorf("%s: %d pages are read of %d instances, and %d of %d, want at most %d", name, before, few, after, many, limit)
		}
	}
}

// Reading a part of a history does not read the rest.
func TestHistoryReadsOnlyTheRequestedPart(t *testing.T) {
	pages := func(moves int) map[string]int {
		s := openAt(t, newPath(t))
		defer s.Close()
		c := storetest.Start(t, storetest.ID(1), `{}`)
		for n := range moves {
			if err := s.Commit(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			last := c.Next
			if c = storetest.Advance(t, last, "reviewing", `{}`); n == moves-9 {
				c = storetest.CheckpointOf(t, last)
			}
		}
		s.ReaderDB().SetMaxOpenConns(1)
		read := map[string]int{}
		for name, q := range map[string]store.EventQuery{
			"up to a revision":    {Instance: storetest.ID(1), MaxRevision: 20},
			"checkpoints":         {Instance: storetest.ID(1), Kinds: []record.Kind{record.Checkpointed}},
			"removals":            {Instance: storetest.ID(1), Kinds: []record.Kind{record.Truncated}},
			"the last, of a kind": {Instance: storetest.ID(1), AfterSeq: int64(moves) - 20, Kinds: []record.Kind{record.Advanced}},
		} {
			read[name] = pagesRead(t, s, q)
		}
		return read
	}
	short, long := pages(100), pages(2000)
	for name, n := range short {
		if t.Logf("%s: %d pages of 100 events, %d of 2,000", name, n, long[name]); long[name] > n+n/2+10 {
			t.Errorf("%s: %d pages are read of 100 events, %d of 2,000", name, n, long[name])
		}
	}
}

// fillStore creates a store with n instances (storetest.Grown). All lists read on a single connection.
func fillStore(t *testing.T, n int) *sqlite.Store {
	t.Helper()
	s := openAt(t, newPath(t))
	t.Cleanup(func() { s.Close() })
	for first := 0; first < n; first += 64 { // roughly in the order of their times
		var wg sync.WaitGroup
		for i := first; i < min(n, first+64); i++ {
			wg.Go(func() {
				for _, c := range storetest.Grown(t, i, n) {
					if err := s.Commit(t.Context(), c); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	s.ReaderDB().SetMaxOpenConns(1)
	storetest.ReadPage(t, s, store.DecisionQuery{Text: "missing"}) // brings the index up to date
	return s
}

func listPages(t *testing.T, s *sqlite.Store, n int) map[string]any {
	t.Helper()
	last, err := s.LastPosition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return storetest.ListPages(n, last)
}

// pagesRead returns how many pages of the file a list page reads.
func pagesRead(t *testing.T, s *sqlite.Store, q any) int {
	t.Helper()
	read := func() (n int) {
		conn, err := s.ReaderDB().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		err = conn.Raw(func(c any) error {
			for _, counter := range []modernc.DBStatusOp{modernc.DBStatusCacheHit, modernc.DBStatusCacheMiss} {
				count, _, err := c.(modernc.DBStatus).Status(counter, false)
				if err != nil {
					return err
				}
				n += count
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := read()
	storetest.ReadPage(t, s, q)
	return read() - before
}
