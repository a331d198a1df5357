package chain

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
)

// otherLedger is the ledger of a store that is identified by its digests.
type otherLedger struct {
	Ledger
	key string
}

func (l otherLedger) DigestStep(string, string, []byte) string       { return l.key }
func (l otherLedger) ListOpenRuns(context.Context) ([]string, error) { return nil, nil }

// TestRunsOfAnotherStore: a store does not continue the runs of another store.
func TestRunsOfAnotherStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chains.db")
	open := func(key string, open func(context.Context, Config) (*Runs, error)) error {
		r, err := open(context.Background(), Config{Path: path, Ledger: otherLedger{key: key}})
		if err == nil {
			r.Close()
		}
		return err
	}
	for range 2 {
		if err := open("a", Open); err != nil {
			t.Fatal(err)
		}
	}
	want := "open the runs in " + path + ": they belong to another store; set another location in chains.state"
	for name, how := range map[string]func(context.Context, Config) (*Runs, error){"execute": Open, "control": OpenControl} {
		if err := open("b", how); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
		if err := open("a", how); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNewerTables: tables of a later DBOS are rejected, and tables of this DBOS have the known version.
func TestNewerTables(t *testing.T) {
	folder := t.TempDir()
	openRuns(t, folder, nil).Close()
	path := filepath.Join(folder, "chains.db")
	db, err := sql.Open("sqlite", fileAddress(path, "busy_timeout(5000)"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var version int64
	if err := db.QueryRowContext(t.Context(), "SELECT version FROM "+VersionTable).Scan(&version); err != nil || version != knownVersion {
		t.Errorf("the tables have the version %d, and %d is known: %v", version, knownVersion, err)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE "+VersionTable+" SET version = version + 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Path: path}); err == nil || !strings.Contains(err.Error(), "the tables of runs have version 126, but this program supports 125; use a newer gavel, or another file") {
		t.Errorf("newer tables: %v", err)
	}
}

// TestTablesThatWereBegun: a file is opened even if its first process was killed before it had created the
// tables.
func TestTablesThatWereBegun(t *testing.T) {
	folder := t.TempDir()
	if _, err := openSQLite(t, filepath.Join(folder, "chains.db")).ExecContext(t.Context(), "CREATE TABLE "+VersionTable+" (version INTEGER NOT NULL PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	r := openRuns(t, folder, &fakeServers{})
	defer r.Close()
	if result := waitRun(t, r, startRun(t, r, parse(t, steps(first)), "")); result.Err != nil {
		t.Error(result.Err)
	}
}
