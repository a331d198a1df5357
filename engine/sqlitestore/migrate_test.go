package sqlitestore_test

import (
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// A file of the first schema keeps what it holds, and takes what is new.
func TestMigrateFromTheFirstSchema(t *testing.T) {
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
	run(t, db, "DROP TABLE refusals")
	run(t, db, "DROP TABLE reviews")
	run(t, db, "PRAGMA user_version = 1")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s = openAt(t, path)
	defer s.Close()
	inst, err := s.Load(t.Context(), storetest.ID(1))
	if err != nil || inst.Seq != begun.Next.Seq || string(inst.Context) != `{"x":1}` {
		t.Fatalf("%+v, %v", inst, err)
	}
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	c := storetest.Advance(t, inst, "reviewing", `{}`)
	c.Lesson = &engine.Lesson{Guard: "g", Identity: "i", At: at, Refused: true}
	if err := s.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Refusals(t.Context(), "g", at); err != nil || n != 1 {
		t.Errorf("%d refusals, %v", n, err)
	}
}
