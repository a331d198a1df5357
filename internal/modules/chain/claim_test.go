package chain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/values"
)

// fakeLedger implements only the methods below.
type fakeLedger struct {
	Ledger

	name  string
	open  []string
	ended []string
}

func (l *fakeLedger) BeginRun(context.Context, engine.Principal, engine.RunRequest) error { return nil }

func (l *fakeLedger) RecordStep(_ context.Context, req engine.StepRecord) error {
	l.ended = append(l.ended, req.Run+" "+req.Action+" "+string(req.Data))
	return nil
}

func (l *fakeLedger) DigestStep(string, string, []byte) string       { return "digest of " + l.name }
func (l *fakeLedger) ListOpenRuns(context.Context) ([]string, error) { return l.open, nil }
func (l *fakeLedger) Values() *values.Keyring                        { return nil }

// TestBadFiles: testdata/bad_files.golden holds the error messages for files that do not hold the store's
// runs. Nothing in them is executed, and foreign content is not changed.
func TestBadFiles(t *testing.T) {
	ours, other := &fakeLedger{name: "ours"}, &fakeLedger{name: "other"}
	recorded := filepath.Join("testdata", version, recordings[0]+".sql")
	change := func(statements string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			loadSQL(t, recorded, path)
			if _, err := openSQLite(t, path).ExecContext(t.Context(), statements); err != nil {
				t.Fatal(err)
			}
		}
	}
	claimed := func(by *fakeLedger) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			r, err := Open(t.Context(), Config{Path: path, Ledger: by})
			if err != nil {
				t.Fatal(err)
			}
			startRun(t, r, parse(t, steps(`{id: a, type: wait, signal: go}`, `{id: b, type: tool, server: s, action: x}`)), "")
			r.Close()
		}
	}
	write := func(text string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got strings.Builder
	for _, bad := range []struct {
		name string
		by   *fakeLedger
		make func(t *testing.T, path string)
		// isOurs reports that the file may be changed, because tables are created in it.
		isOurs bool
	}{
		{"a folder", ours, func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"no database", ours, write(strings.Repeat("no database ", 100)), false},
		{"another database", ours, func(t *testing.T, path string) {
			_, _ = openSQLite(t, path).ExecContext(t.Context(), "CREATE TABLE workflow_status (workflow_uuid TEXT)")
		}, false},
		{"a file cut off", ours, func(t *testing.T, path string) {
			loadSQL(t, recorded, path)
			if err := os.Truncate(path, 5000); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"tables of a later version", ours, change("UPDATE dbos_migrations SET version = 126"), false},
		{"runs of a later version", ours, change("UPDATE workflow_status SET application_version = 'chain-2' WHERE name = 'chain'"), true},
		{"of another store", ours, claimed(other), true},
		{"of a store, without one", nil, claimed(other), true},
		{"gone, with a run", &fakeLedger{name: "ours", open: []string{"run-1"}}, func(*testing.T, string) {}, true},
		{"gone, with runs", &fakeLedger{name: "ours", open: []string{"run-3", "run-2", "run-1"}}, func(*testing.T, string) {}, true},
	} {
		path := filepath.Join(t.TempDir(), "chains.db")
		bad.make(t, path)
		before, _ := os.ReadFile(path) //nolint:errcheck // a folder has none
		f := &fakeServers{}
		c := Config{Path: path, Effects: f, Repeatable: isRecordedRepeatable}
		if bad.by != nil {
			c.Ledger = bad.by
		}
		for range 2 { // the second start behaves like the first
			r, err := Open(t.Context(), c)
			if err == nil {
				r.Close()
				t.Errorf("%s: it is opened", bad.name)
				break
			}
			said := strings.ReplaceAll(err.Error(), path, "FILE")
			if strings.Contains(got.String(), "== "+bad.name+"\n"+said+"\n") {
				continue
			}
			fmt.Fprintf(&got, "== %s\n%s\n", bad.name, said)
		}
		if len(f.calls) > 0 {
			t.Errorf("%s: %v was called", bad.name, f.calls)
		}
		if after, _ := os.ReadFile(path); !bad.isOurs && string(after) != string(before) { //nolint:errcheck // a folder has none
			t.Errorf("%s: the file was changed", bad.name)
		}
	}
	compareGolden(t, "bad_files.golden", got.String())
}

// TestClaim: a file belongs to the first store that opens it, even if an earlier version created it. Runs
// whose file was emptied are given up.
func TestClaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chains.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := &fakeLedger{name: "ours", open: []string{"run-2", "run-1"}}
	for range 2 {
		r, err := Open(t.Context(), Config{Path: path, Ledger: l})
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	const lost = ` fail {"error":{"code":"lost","message":"the file with the run is lost, and an operator gave the run up"}}`
	if len(l.ended) != 2 || strings.TrimSpace(l.ended[0]) != "run-2"+lost {
		t.Errorf("recorded is %q", l.ended)
	}
	earlier := filepath.Join(t.TempDir(), "chains.db")
	loadSQL(t, filepath.Join("testdata", version, recordings[0]+".sql"), earlier)
	r, err := Open(t.Context(), Config{Path: earlier, Ledger: l, Effects: &fakeServers{}})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, err = Open(t.Context(), Config{Path: earlier, Ledger: &fakeLedger{name: "other"}}); err == nil || !strings.Contains(err.Error(), "they belong to another store") {
		t.Errorf("another store opens it: %v", err)
	}
}
