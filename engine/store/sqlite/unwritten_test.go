package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// A search works even if nothing can be written: it scans what is not indexed.
func TestSearchWhileNothingCanBeWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gavel.db")
	open := func(wait time.Duration) *sqlite.Store { // 0 means the default
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: wait})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	another := open(0) // an indexer may hold the write lock for longer than s waits
	c := storetest.Start(t, storetest.ID(1), `{}`)
	const events = 700 // more than a search scans without an index
	for range events {
		if err := another.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c = storetest.Refuse(t, c.Next, "go")
	}
	s := open(20 * time.Millisecond)
	find := func() (n int) {
		t.Helper()
		for _, err := range s.Decisions(t.Context(), store.DecisionQuery{Action: "go"}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	release := lock(t, path)
	if err := s.Commit(t.Context(), c); err == nil {
		t.Fatal("something could be written")
	}
	for range 2 {
		if got := find(); got != events-1 {
			t.Errorf("found %d decisions, want %d", got, events-1)
		}
	}
	release()
	if got := find(); got != events-1 {
		t.Errorf("found %d decisions afterwards, want %d", got, events-1)
	}
}
