package engine_test

import (
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Every allowed operation is done in turn by two processes, with a key that is replaced on the way.
// Verification is clean each time, also in a backup.
func TestVerifyAcceptsAllowedOperations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gavel.db")
	var stores []*sqlite.Store
	for range 2 {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores = append(stores, s)
	}
	older, newer := newSigner(t), newSigner(t)
	one := newBenchOn(t, stores[0]).signedBy(older)
	two := newBenchOn(t, stores[1]).signedBy(newer)
	var notes []string
	check := func(when string, by *bench) {
		t.Helper()
		if by != nil {
			notes = append(notes, by.anchor().Note)
		}
		req := audit.VerifyRequest{Keys: []*record.Verifier{older.Verifier(), newer.Verifier()}, Published: notes}
		if len(notes) == 0 {
			req = audit.VerifyRequest{}
		}
		if r, err := two.Verify(t.Context(), auditor, req); err != nil || !r.Clean() {
			t.Errorf("%s: %+v, %v", when, r, err)
		}
	}
	configure := func(b *bench, minimum float64) {
		t.Helper()
		_, err := b.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "fading", Settings: workflow.JudgeSettings{MinConfidence: &minimum}})
		if err != nil {
			t.Fatal(err)
		}
	}
	one.define(operator, fading)
	id := one.start(agent, "fading", `{"n":1}`).ID
	configure(one, 0.1)
	one.moved(agent, id, "go", `{"n":2}`, "b")
	check("configured", nil)
	cp := one.checkpoint(agent, id)
	one.checkpoint(agent, id)
	check("anchored", one)
	configure(two, 0.2)
	two.moved(agent, id, "back", `{"n":3}`, "a")
	two.undo(operator, id, "b")
	one.redo(operator, id, "a")
	check("undone and redone", one)
	if _, err := two.Rollback(t.Context(), operator, engine.RollbackRequest{ID: id, CheckpointID: cp}); err != nil {
		t.Fatal(err)
	}
	check("rolled back", one)
	two.define(operator, `{"name":"fading","initialState":"a","retention":{"events":"30d"},"description":"newer","states":{
		"a":{"transitions":{"go":"b"}},"b":{"transitions":{"go":"c","back":"a"}},"c":{"final":true,"outcome":"success"}}}`)
	if r, err := two.Migrate(t.Context(), operator, engine.MigrateRequest{Workflow: "fading"}); err != nil || r.Migrated != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	check("migrated", one)
	ended := one.faded()
	one.moved(agent, id, "go", `{}`, "c")
	check("another key", two)
	one.pass(31 * day)
	two.pass(31 * day)
	if r := two.retain(audit.RetainRequest{}); len(r.Histories) != 2 || len(r.Broken) != 0 {
		t.Fatalf("%+v", r)
	}
	check("shortened", nil)
	check("shortened and anchored", two)
	two.start(agent, "fading", `{}`)
	check("went on", two)
	if r, err := two.Verify(t.Context(), auditor, audit.VerifyRequest{Instance: ended, Keys: []*record.Verifier{newer.Verifier(), older.Verifier()}}); err != nil || !r.Clean() {
		t.Errorf("one instance: %+v, %v", r, err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if _, err := sqlite.Copy(t.Context(), stores[0].Path(), copied, false); err != nil {
		t.Fatal(err)
	}
	b, err := sqlite.Open(t.Context(), sqlite.Config{Path: copied})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r, err := newBenchWith(t, b, nil, func(*engine.Config) {}).Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{older.Verifier(), newer.Verifier()}, Published: notes})
	if err != nil || !r.Clean() || r.Shortened != 2 {
		t.Errorf("the backup: %+v, %v", r, err)
	}
}
