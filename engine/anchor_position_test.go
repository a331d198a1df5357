package engine_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
)

// Anchors and their verification also cover an event at a position that was used before, for example after
// a repair or tampering.
func TestAnchorsCoverReusedPositions(t *testing.T) {
	l := &ledger{path: filepath.Join(t.TempDir(), "gavel.db"), key: newSigner(t)}
	b, closing := l.open(t, l.path)
	b.define(operator, ledgerWorkflow)
	l.ids = []string{b.start(agent, "ledger", `{}`).ID, b.start(agent, "ledger", `{}`).ID}
	l.anchor(t, b)
	b.advance(agent, l.ids[0], "go", `{"why":"x"}`)
	closing()
	db, err := sql.Open("sqlite", l.path)
	if err != nil {
		t.Fatal(err)
	}
	file{t, db, l}.run("UPDATE events SET pos = pos - 3 WHERE pos > 1") // as if the newest had been lost
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if r := l.verify(t, l.path); !r.Clean() || r.Unanchored != 1 {
		t.Errorf("before: %+v", r)
	}
	b, closing = l.open(t, l.path)
	a := b.anchor()
	if !a.Written || a.Number != 2 || a.Instances != 1 || a.Events != 2 {
		t.Errorf("%+v", a)
	}
	l.notes = append(l.notes, a.Note)
	if a := b.anchor(); a.Written {
		t.Errorf("once more: %+v", a)
	}
	b.start(agent, "ledger", `{}`)
	if a := b.anchor(); !a.Written || a.Instances != 1 {
		t.Errorf("one more: %+v", a)
	} else {
		l.notes = append(l.notes, a.Note)
	}
	closing()
	if r := l.verify(t, l.path); !r.Clean() || r.Unanchored != 0 || r.Anchors != 3 {
		t.Errorf("after: %+v", r)
	}
	if r := l.verifyWith(t, l.path, audit.VerifyRequest{Instance: l.ids[1], Keys: []*record.Verifier{l.key.Verifier()}}); !r.Clean() || r.Unanchored != 0 {
		t.Errorf("one: %+v", r)
	}
}

// Events that another process has anchored are not anchored again.
func TestAnchorsAreNotAddedTwice(t *testing.T) {
	l := &ledger{path: filepath.Join(t.TempDir(), "gavel.db"), key: newSigner(t)}
	one, _ := l.open(t, l.path)
	other, _ := l.open(t, l.path)
	one.define(operator, ledgerWorkflow)
	id := one.start(agent, "ledger", `{}`).ID
	l.anchor(t, one)
	one.start(agent, "ledger", `{}`)
	l.anchor(t, other)
	if a := one.anchor(); a.Written || a.Number != 2 {
		t.Errorf("nothing has happened: %+v", a)
	}
	other.advance(agent, id, "go", `{"why":"x"}`)
	if a := one.anchor(); !a.Written || a.Number != 3 || a.Instances != 1 || a.Events != 3 {
		t.Errorf("%+v", a)
	}
}
