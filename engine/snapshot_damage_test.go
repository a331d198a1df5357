package engine_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
)

// A snapshot that was damaged on disk never gets into a live instance. Neither a rollback nor a read of
// the past accepts it, and after a repair both return the original values.
func TestDamagedSnapshotStaysOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gavel.db")
	open := func(path string) (*bench, *sqlite.Store) {
		store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return newBenchOn(t, store), store
	}
	b, store := open(path)
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{"amount":1000}`).ID
	b.moved(agent, id, "go", `{"n":1}`, "b")
	checkpoint := b.checkpoint(agent, id)
	b.moved(agent, id, "go", `{"n":2}`, "c")
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err == nil {
		_, err = db.Exec(`UPDATE snapshots SET context = CAST(replace(CAST(context AS TEXT), '1000', '9000') AS BLOB)`)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	b, store = open(path)
	_, err = b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: checkpoint})
	wantCode(t, err, engine.CodeUnavailable)
	_, err = b.StatusAt(t.Context(), agent, id, engine.When{Revision: 2})
	wantCode(t, err, engine.CodeUnavailable)
	if inst := b.load(id); inst.State != "c" {
		t.Errorf("the instance is in %q", inst.State)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	repaired := filepath.Join(t.TempDir(), "repaired.db")
	if _, err := sqlite.Salvage(t.Context(), path, repaired); err != nil {
		t.Fatal(err)
	}
	b, store = open(repaired)
	defer store.Close()
	if _, err := b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: checkpoint}); err != nil {
		t.Fatal(err)
	}
	if inst := b.load(id); inst.State != "b" || string(inst.Context) != `{"amount":1000,"n":1}` {
		t.Errorf("the instance is in %q with %s", inst.State, inst.Context)
	}
}
