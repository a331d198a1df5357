package sqlitestore_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/sqlitestore"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// A file of an older schema keeps what it holds, and takes what is new.
func TestMigrate(t *testing.T) {
	added := map[int][]string{
		2: {"TABLE refusals"}, 3: {"TABLE reviews"}, 4: {"TABLE anchors"},
		5:  {"TRIGGER decisions_removed", "TABLE decision_terms", "TABLE decision_times", "TABLE decision_index"},
		6:  nil, // see unseal
		7:  nil, // see uncount
		8:  nil, // a column
		9:  nil, // see forgetCalls
		10: {"TABLE counters"},
		11: {"TABLE leases", "TABLE cursors", "TABLE data_keys"},
		12: {"TABLE dead_letters"},
		13: {"INDEX instances_state", "INDEX instances_workflow_state"},
		14: {"INDEX events_marks"},
	} // by schema
	for schema := 1; schema <= len(added); schema++ {
		t.Run(fmt.Sprint("from schema ", schema), func(t *testing.T) {
			path := newPath(t)
			s := openAt(t, path)
			begun := storetest.Start(t, storetest.ID(1), `{"x":1}`)
			if err := s.Commit(t.Context(), begun); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			db := raw(t, path)
			for later := 1 + len(added); later > schema; later-- {
				switch later {
				case 6:
					unseal(t, db)
				case 7:
					uncount(t, db)
				case 9:
					forgetCalls(t, db)
				case 8:
					run(t, db, "ALTER TABLE refusals DROP COLUMN instance")
				}
				for _, one := range added[later] {
					run(t, db, "DROP "+one)
				}
			}
			run(t, db, fmt.Sprint("PRAGMA user_version = ", schema))
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}

			s = openAt(t, path)
			defer s.Close()
			checkMigrated(t, s, begun)
		})
	}
}

// unseal takes away what schema 6 added.
func unseal(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, table := range []string{"definitions", "judge_configs"} {
		run(t, db, "DROP INDEX "+table+"_place")
		for _, column := range []string{"place", "prev_seal", "seal", "mac"} {
			run(t, db, "ALTER TABLE "+table+" DROP COLUMN "+column)
		}
	}
}

// uncount takes away what schema 7 added.
func uncount(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, query := range []string{
		"DROP INDEX instances_status", "DROP TRIGGER decisions_removed", "ALTER TABLE decision_times DROP COLUMN figures",
		"CREATE TRIGGER decisions_removed AFTER DELETE ON events BEGIN DELETE FROM decision_terms WHERE rowid = OLD.pos; END",
	} {
		run(t, db, query)
	}
}

// forgetCalls takes away what schema 9 added.
func forgetCalls(t *testing.T, db *sql.DB) {
	t.Helper()
	run(t, db, "DROP INDEX instances_calls; DROP INDEX instances_subject; ALTER TABLE instances DROP COLUMN calls; ALTER TABLE instances DROP COLUMN subject")
}

// checkMigrated looks for what an old file held, and writes what it could not hold.
func checkMigrated(t *testing.T, s *sqlitestore.Store, begun store.Commit) {
	t.Helper()
	inst, err := s.Load(t.Context(), storetest.ID(1))
	if err != nil || inst.Seq != begun.Next.Seq || string(inst.Context) != `{"x":1}` {
		t.Fatalf("%+v, %v", inst, err)
	}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	c := storetest.Advance(t, inst, "reviewing", `{}`)
	c.Lesson = &store.Lesson{Guard: "g", Identity: "i", At: at, Refused: true}
	c.Reviews = []store.Review{storetest.Review(1, inst)}
	if err := s.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if n, _, err := s.Refusals(t.Context(), "g", "i", at); err != nil || n != 1 {
		t.Errorf("%d refusals, %v", n, err)
	}
	if r, err := store.FindReview(t.Context(), s, storetest.ReviewID(1)); err != nil || r.Instance != inst.ID {
		t.Errorf("the review is of %q, %v", r.Instance, err)
	}
	if err := s.MoveCursor(t.Context(), store.Cursor{Name: "c"}, store.NoCursor, nil); err != nil {
		t.Error(err)
	}
	if got := found(t, s, store.DecisionQuery{Kinds: []record.Kind{record.Started}}); len(got) != 1 {
		t.Errorf("found %d decisions of the old file, want 1", len(got))
	}
}
