//nolint:thelper // what takes a T here is part of the test, not a helper

package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

func TestConformance(t *testing.T) { storetest.Run(t, driver(unsynced)) }

// unsynced opens a store that leaves it to the system when to write. The suite's guarantees do not depend on syncing,
// and the tests of kills and power cuts do sync.
func unsynced(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s := openAt(t, path)
	if _, err := s.WriterConn().ExecContext(t.Context(), "PRAGMA synchronous = OFF"); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestConformanceOfDirectWrites runs the suite with direct writes from the start.
func TestConformanceOfDirectWrites(t *testing.T) {
	storetest.SkipUnlessLong(t)
	d := driver(func(t testing.TB, path string) *sqlite.Store {
		s := unsynced(t, path)
		s.Alone()
		return s
	})
	d.Sample = true
	storetest.Run(t, d)
}

func driver(open func(t testing.TB, path string) *sqlite.Store) storetest.Driver {
	return storetest.Driver{
		Open: func(t testing.TB) store.Store { return open(t, newPath(t)) },
		Reopen: func(t testing.TB, closed store.Store) store.Store {
			return open(t, closed.(*sqlite.Store).Path())
		},
		Beside: func(t testing.TB, first store.Store) store.Store {
			return open(t, first.(*sqlite.Store).Path())
		},
		Poison: func(t testing.TB, s store.Store, action string) {
			db := raw(t, s.(*sqlite.Store).Path())
			defer db.Close()
			run(t, db, fmt.Sprintf(`CREATE TRIGGER poison BEFORE INSERT ON events
				WHEN instr(NEW.body, '"action":"%s"') BEGIN SELECT RAISE(ABORT, 'poisoned'); END`, action))
		},
		Stall: func(t testing.TB, s store.Store) func() {
			return lock(t, s.(*sqlite.Store).Path())
		},
	}
}

// newPath returns a path with characters that are special in URIs.
func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "a store?#%20é", "gavel.db") }

func openAt(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.OpenIndexing(context.Background(), sqlite.Config{Path: path}, time.Hour) // long enough on any machine
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// raw opens a store's file without the driver.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	return db
}

func run(t testing.TB, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// lock holds the write lock of a store's file, as another process would.
func lock(t testing.TB, path string) (release func()) {
	t.Helper()
	db := raw(t, path)
	run(t, db, "BEGIN IMMEDIATE")
	return func() {
		run(t, db, "ROLLBACK")
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
