package engine_test

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

var update = flag.Bool("update", false, "write the generated pages of docs/reference")

const tamperPage = "../docs/reference/tampering.md"

// unseen gives the reason why verification does not find a manipulation of a column, of a row, or of a
// whole table.
var unseen = map[string]string{
	"refusals":                  "counters of the loop guard; no hash covers them",
	"counters":                  "what was counted for a while; no hash covers them",
	"leases":                    "which process does what; nothing recorded depends on it",
	"cursors":                   "what readers have; they get an event twice or miss it",
	"dead_letters":              "what receivers did not accept; they get it again or never",
	"data_keys":                 "what they seal cannot be read without them; its hashes verify as before",
	"reviews":                   "rows of open reviews; no hash covers them, the events say what was asked and decided",
	"decision_terms":            "an index for searches, derived from the events",
	"decision_times":            "an index for searches and statistics, derived from the events",
	"decision_index":            "an index for searches, derived from the events",
	"events.seq":                "it only finds the event: the number that counts is in its body, and the order is the same",
	"events.pos":                "the order of events of different instances; within a history the hashes say it",
	"events: a row is put in":   "it belongs to no instance, so no history has it",
	"contexts: a row is put in": "it belongs to no instance",
	"instances.calls":           "an index that finds instances with open calls; which there are stands in the facts",
	"snapshots":                 "derived from the events: without it, or with one that is out of place, the events are folded",
	"(store): an event of no instance is put in":                           "it belongs to no instance, so no history has it",
	"(files): an older copy is put back, and the anchor file cut to match": "keep the anchor file where the writer of the store cannot change it",
	"(store): a trigger is added":                                          "it is no record; what it does later to rows is found as this list says",
}

// tamperTables returns the tables of the schema; those of the full text index count as one.
func tamperTables(t *testing.T, path string) (tables []string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(name, "decision_terms_") {
			tables = append(tables, name)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return tables
}

type tamperColumn struct {
	name, kind string
	unique     bool
}

// tamperColumns returns the columns of a table, and which of them must be unique.
func tamperColumns(t *testing.T, db *sql.DB, table string) (columns []tamperColumn) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT name, type, pk > 0 OR name IN (
		SELECT x.name FROM pragma_index_list(?1) l JOIN pragma_index_info(l.name) x WHERE l."unique") FROM pragma_table_info(?1)`, table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var c tamperColumn
		if err := rows.Scan(&c.name, &c.kind, &c.unique); err != nil {
			t.Fatal(err)
		}
		columns = append(columns, c)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return columns
}

// changed returns an SQL expression for another value of a column.
func (c tamperColumn) changed() string {
	switch {
	case c.name == "operator":
		return "1 - operator"
	case c.kind == "INTEGER":
		return c.name + " + 1000"
	case c.kind == "TEXT":
		return "coalesce(" + c.name + ", '') || 'x'"
	}
	return "CAST(coalesce(" + c.name + ", zeroblob(31)) || 'x' AS BLOB)"
}

// newTampered returns a ledger with data in every table.
func newTampered(t *testing.T) *ledger {
	t.Helper()
	l := newLedger(t)
	b, closing := l.open(t, l.path)
	b.define(operator, strings.Replace(ledgerWorkflow, `"ledger"`, `"other"`, 1))
	b.configure(operator, "ledger", workflow.JudgeSettings{MinConfidence: new(0.5)})
	b.configure(operator, "ledger", workflow.JudgeSettings{MinConfidence: new(0.6)})
	b.advance(agent, l.ids[0], "back", `{}`)
	if err := b.store.Commit(t.Context(), store.Commit{Lesson: &store.Lesson{Guard: "g", Identity: "i", At: b.now, Refused: true, Opinion: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	for _, err := range b.store.Decisions(t.Context(), store.DecisionQuery{Text: "why"}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	l.anchor(t, b)
	closing()
	db, err := sql.Open("sqlite", l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `INSERT INTO reviews (id, place, status, instance, workflow, principal, body, data)
		SELECT 'rev-1', 0, 'resolved', id, workflow, owner, CAST('{"id":"rev-1"}' AS BLOB), NULL FROM instances LIMIT 1`); err != nil {
		t.Fatal(err)
	}
	return l
}

// manipulation is a row of the documented table: the change, and the result of verification.
type manipulation struct{ table, what, found string }

// outcome returns the finding of verification in a changed copy of the store.
func (l *ledger) outcome(t *testing.T, change func(f file) error) string {
	t.Helper()
	return l.outcomeOf(t, l.path, ruleKey, l.notes, change)
}

// outcomeOf is outcome for another file, another gavel.key, or other published anchors.
func (l *ledger) outcomeOf(t *testing.T, from string, key []byte, published []string, change func(f file) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gavel.db")
	copyFile(t, from, path)
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := change(file{t, raw, l}); err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		return "it does not open"
	}
	b := newBenchWith(t, db, nil, func(c *engine.Config) { c.RuleKey, c.ShowUnsealed = key, true })
	r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{l.key.Verifier()}, Published: published})
	if err != nil {
		return "it cannot be read: " + string(engine.CodeOf(err))
	}
	kinds := map[string]bool{}
	for _, p := range r.Problems {
		kinds["`"+string(p.Kind)+"`"] = true
	}
	names := make([]string, 0, len(kinds))
	for kind := range kinds {
		names = append(names, kind)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func TestTamperTable(t *testing.T) {
	t.Parallel()
	sampled := storetest.RaceDetector || !storetest.Long() && !*update // it runs in one goroutine, so a sample is enough
	l := newTampered(t)
	if found := l.outcome(t, func(file) error { return nil }); found != "" {
		t.Fatalf("untouched: %s", found)
	}
	run := func(f file, query string) error {
		_, err := f.ExecContext(t.Context(), query)
		return err
	}
	var rows []manipulation
	for _, table := range tamperTables(t, l.path) {
		db, err := sql.Open("sqlite", l.path)
		if err != nil {
			t.Fatal(err)
		}
		columns := tamperColumns(t, db, table)
		_ = db.Close()
		if table == "decision_terms" { // has no content of its own
			rows = append(rows, manipulation{table, "a row is removed", l.outcome(t, func(f file) error {
				return run(f, "DELETE FROM decision_terms WHERE rowid = (SELECT max(rowid) FROM decision_terms)")
			})})
			continue
		}
		var names, values []string
		for _, c := range columns {
			names = append(names, c.name)
			if c.unique {
				values = append(values, c.changed())
			} else {
				values = append(values, c.name)
			}
		}
		last := " WHERE rowid = (SELECT max(rowid) FROM " + table + ")"
		if table != "decision_index" { // one row, and there can be no other
			rows = append(rows, manipulation{table, "a row is put in", l.outcome(t, func(f file) error {
				return run(f, "INSERT INTO "+table+" ("+strings.Join(names, ", ")+") SELECT "+strings.Join(values, ", ")+" FROM "+table+last)
			})})
		}
		for what, which := range map[string]string{"the first row is removed": "min", "the last row is removed": "max"} {
			rows = append(rows, manipulation{table, what, l.outcome(t, func(f file) error {
				return run(f, "DELETE FROM "+table+" WHERE rowid = (SELECT "+which+"(rowid) FROM "+table+")")
			})})
		}
		for i, c := range columns {
			if table == "decision_index" && c.name == "id" || sampled && i%8 > 0 {
				continue
			}
			rows = append(rows, manipulation{table, "`" + c.name + "` is changed", l.outcome(t, func(f file) error {
				return run(f, "UPDATE "+table+" SET "+c.name+" = "+c.changed()+last)
			})})
		}
	}
	whole := func(what string, change func(f file)) {
		rows = append(rows, manipulation{"(store)", what, l.outcome(t, func(f file) error { change(f); return nil })})
	}
	whole("two definitions are swapped", func(f file) {
		f.run("UPDATE definitions SET name = 'x' WHERE name = 'ledger'")
		f.run("UPDATE definitions SET name = 'ledger' WHERE name = 'other'")
		f.run("UPDATE definitions SET name = 'other' WHERE name = 'x'")
	})
	whole("all seals are removed", func(f file) {
		f.run("UPDATE definitions SET place = 0")
		f.run("UPDATE judge_configs SET place = 0")
	})
	whole("all definitions and configurations are removed", func(f file) { f.run("DELETE FROM definitions"); f.run("DELETE FROM judge_configs") })
	whole("a history is written anew with right hashes", func(f file) { f.rewrite(0, fromSeq(2, "agent:eve")) })
	whole("the end of a history is removed", func(f file) { f.cut(0, 3) })
	whole("an instance is removed", func(f file) { f.remove(2) })
	whole("an instance's `seq` is 0", func(f file) { f.run("UPDATE instances SET seq = 0 WHERE rowid = (SELECT max(rowid) FROM instances)") })
	whole("a definition's `version` is 9223372036854775807", func(f file) { f.run("UPDATE definitions SET version = 9223372036854775807 WHERE name = 'other'") })
	whole("a definition's `operator` is 2", func(f file) { f.run("UPDATE definitions SET operator = 2 WHERE name = 'other'") })
	whole("two events of a history are swapped", func(f file) { f.swap(0, 2, 3) })
	whole("all anchors are removed", func(f file) { f.run("DELETE FROM anchors") })
	whole("a trigger is added", func(f file) {
		if err := run(f, "CREATE TRIGGER later AFTER INSERT ON events BEGIN DELETE FROM reviews; END"); err != nil {
			t.Fatal(err)
		}
	})
	whole("an event of no instance is put in", func(f file) {
		f.run("INSERT INTO events (n, seq, revision, kind, at, prev_hash, hash, body) SELECT 4711, seq, revision, kind, at, prev_hash, hash, body FROM events LIMIT 1")
	})
	same := func(file) error { return nil }
	rows = append(rows,
		manipulation{"(store)", "an older copy is put back", l.outcomeOf(t, l.older, ruleKey, l.notes, same)},
		manipulation{"(files)", "`gavel.key` is replaced", l.outcomeOf(t, l.path, []byte("another key"), l.notes, same)},
		manipulation{"(files)", "the anchor file is emptied", l.outcomeOf(t, l.path, ruleKey, []string{}, same)},
		manipulation{"(files)", "an older copy is put back, and the anchor file cut to match", l.outcomeOf(t, l.older, ruleKey, l.notes[:1], same)},
	)
	l.writeTamperTable(t, rows, sampled)
}

// whyUnseen returns the reason why a manipulation is not found.
func whyUnseen(r manipulation) string {
	column, _, _ := strings.Cut(strings.TrimPrefix(r.what, "`"), "`")
	for _, key := range []string{r.table + "." + column, r.table + ": " + r.what, r.table} {
		if why := unseen[key]; why != "" {
			return why
		}
	}
	return ""
}

func (l *ledger) writeTamperTable(t *testing.T, rows []manipulation, sampled bool) {
	t.Helper()
	slices.SortStableFunc(rows, func(a, b manipulation) int { return strings.Compare(a.table+a.what, b.table+b.what) })
	var b strings.Builder
	b.WriteString("<!-- Generated by: go test ./engine -run TestTamperTable -update -->\n\n# What verification finds\n\n" +
		"Each row is a manipulation of a store's file that a test makes. `gavel verify` has the public key, the published anchors and `gavel.key`. The last\n" +
		"column has the kinds of [breaks](../records.md#what-is-proved-by-what) that it finds, or why it finds none.\n\n| table | what | found |\n|---|---|---|\n")
	for _, r := range rows {
		found := r.found
		if found == "" {
			why := whyUnseen(r)
			if why == "" {
				t.Errorf("%s: %s is not found, and nothing says why", r.table, r.what)
			}
			found = "not found: " + why
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.table, r.what, found)
	}
	if sampled {
		return // the page has them all
	}
	if *update {
		if err := os.WriteFile(tamperPage, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if page, err := os.ReadFile(tamperPage); err != nil || string(page) != b.String() {
		t.Errorf("%s is stale (%v); run: go test ./engine -run TestTamperTable -update", tamperPage, err)
	}
}
