package engine_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
)

// forge shortens a history as someone without the key could who can write the store.
func (b *bench) forge(id string, upTo int64, change func(*record.Truncation)) {
	b.t.Helper()
	inst, floor := b.load(id), b.at(id, upTo)
	cut := record.Truncation{UpTo: floor.Seq, Hash: floor.Head, Count: floor.Seq, Revision: floor.Revision, Floor: record.DigestState(floor)}
	change(&cut)
	sealed, next, err := record.Seal(inst, record.Event{
		Kind: record.Truncated, Time: inst.UpdatedAt, Principal: operator.ID, Role: string(operator.Role), Truncation: &cut,
	}, nil)
	if err == nil {
		err = b.store.Commit(b.t.Context(), store.Commit{Expect: inst.Seq, Events: []record.Event{sealed}, Next: next, Floor: &floor})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// noted signs a truncation as if it were that of another instance or of another cut.
func noted(t *testing.T, key *record.Signer, id string, change func(*record.Truncation)) func(*record.Truncation) {
	return func(cut *record.Truncation) {
		t.Helper()
		other := *cut
		change(&other)
		note, err := key.Sign(other.Text(id))
		if err != nil {
			t.Fatal(err)
		}
		cut.Note = note
	}
}

// Someone without the key who can write the store removes anchored history, with an event that records it.
// The next anchor signs the rest; verification still finds the removal.
func TestVerifyFindsAForgedRemoval(t *testing.T) {
	l := newLedger(t)
	same := func(*record.Truncation) {}
	forgeries := map[string]func(*record.Truncation){
		"without a note":         same,
		"nonsense":               func(cut *record.Truncation) { cut.Note = "gone\n" },
		"with another key":       noted(t, newSigner(t), l.ids[0], same),
		"note of another":        noted(t, l.key, l.ids[1], same),
		"note of another cut":    noted(t, l.key, l.ids[0], func(cut *record.Truncation) { cut.UpTo, cut.Count = 2, 2 }),
		"note of another floor":  noted(t, l.key, l.ids[0], func(cut *record.Truncation) { cut.Floor = record.HashNote("x") }),
		"note of another ending": noted(t, l.key, l.ids[0], func(cut *record.Truncation) { cut.Hash = record.HashNote("x") }),
		"signed":                 noted(t, l.key, l.ids[0], same),
	}
	// The anchors name events 6 and 8: both are left, one is, none is.
	for upTo, want := range map[int64]wantBreak{3: {audit.BreakAnchor, 0, 6}, 7: {audit.BreakAnchor, 0, 6}, 8: {audit.BreakAnchor, 0, 6}} {
		for name, forgery := range forgeries {
			path := filepath.Join(t.TempDir(), "gavel.db")
			copyFile(t, l.path, path)
			b, closing := l.open(t, path)
			if upTo == 8 { // the floor is the second newest event
				b.advance(agent, l.ids[0], "nonsense", `{}`)
			}
			b.forge(l.ids[0], upTo, forgery)
			for _, laundered := range []bool{false, true} {
				if laundered {
					b.anchor()
				}
				r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{l.key.Verifier()}, Published: l.notes})
				if err != nil {
					t.Fatal(err)
				}
				wants := []wantBreak{want}
				if name == "signed" {
					wants = nil
				}
				t.Run(name, func(t *testing.T) { l.check(t, r, wants) })
			}
			closing()
		}
	}
}

// A removal before the first anchor needs no note: no anchor covered the history.
func TestVerifyLetsOlderRemovalsBe(t *testing.T) {
	key := newSigner(t)
	b := anchorBench(t, memory.New(), key)
	id := b.start(agent, "ledger", `{}`).ID
	b.advance(agent, id, "go", `{"why":"x"}`)
	b.advance(agent, id, "end", `{}`)
	b.forge(id, 2, func(*record.Truncation) {})
	b.anchor()
	b.advance(agent, id, "end", `{}`)
	b.anchor()
	r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{key.Verifier()}})
	if err != nil || !r.Clean() || r.Shortened != 1 || r.Unanchored != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// fadingBench returns a bench of a workflow that keeps histories for 30 days.
func fadingBench(t *testing.T, db store.Store, key audit.Signer) *bench {
	t.Helper()
	b := newBenchOn(t, db).signedBy(key)
	b.define(operator, fading)
	return b
}

// faded returns an instance that has ended.
func (b *bench) faded() string {
	b.t.Helper()
	id := b.start(agent, "fading", `{"n":1}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	b.moved(agent, id, "go", `{}`, "c")
	return id
}

// Removals by the engine itself verify, whatever was anchored before and after.
func TestVerifyAfterRetain(t *testing.T) {
	for name, db := range stores(t) {
		t.Run(name, func(t *testing.T) {
			key := newSigner(t)
			b := fadingBench(t, db, key)
			first := b.start(agent, "fading", `{}`).ID
			b.anchor()
			b.moved(agent, first, "go", `{}`, "b")
			b.anchor()
			b.moved(agent, first, "go", `{}`, "c")
			b.faded()
			b.anchor()
			b.pass(10 * day)
			b.faded()
			b.pass(31 * day)
			check := func(when string, shortened, unanchored int64) {
				t.Helper()
				r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{key.Verifier()}})
				if err != nil || !r.Clean() || r.Shortened != shortened || r.Unanchored != unanchored {
					t.Errorf("%s: %+v, %v", when, r, err)
				}
			}
			check("before", 0, 3)
			if r := b.retain(audit.RetainRequest{}); len(r.Histories) != 3 || r.Events != 6 || len(r.Broken) != 0 {
				t.Fatalf("%+v", r)
			}
			check("after", 3, 6)
			b.anchor()
			check("anchored", 3, 0)
			cut := b.events(first)[1].Truncation
			if cut == nil || cut.CheckNote(first, key.Verifier()) != nil {
				t.Errorf("it is not signed: %+v", cut)
			}
		})
	}
}

func TestRetainNeedsTheKeyOfTheAnchors(t *testing.T) {
	key, db := newSigner(t), memory.New()
	b := fadingBench(t, db, key)
	b.faded()
	b.anchor()
	b.pass(31 * day)
	refused := func(name string, as audit.Signer, hint string) {
		t.Helper()
		other := newBenchOn(t, db).signedBy(as)
		other.pass(31 * day)
		if r, err := other.Retain(t.Context(), operator, audit.RetainRequest{DryRun: true}); as == nil && (err != nil || len(r.Histories) != 1) {
			t.Errorf("%s, a dry run: %+v, %v", name, r, err)
		}
		_, err := other.Retain(t.Context(), operator, audit.RetainRequest{})
		var e *engine.Error
		if !errors.As(err, &e) || e.Code != engine.CodeUnavailable || !strings.Contains(e.Hint, hint) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("no key", nil, "--anchor-key")
	refused("another key", newSigner(t), "signs this store's anchors")
	if r := b.retain(audit.RetainRequest{}); len(r.Histories) != 1 {
		t.Errorf("the key: %+v", r)
	}
}

// Retain does not sign away a rewritten history: neither as it is, nor if the heads stored with the
// anchors are changed while it runs.
func TestRetainLeavesRewrittenHistories(t *testing.T) {
	l := &ledger{path: filepath.Join(t.TempDir(), "gavel.db"), key: newSigner(t)}
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: l.path})
	if err != nil {
		t.Fatal(err)
	}
	b := fadingBench(t, db, l.key)
	l.ids = []string{b.faded(), b.faded()}
	b.anchor()
	raw, err := sql.Open("sqlite", l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	f := file{t, raw, l}
	f.rewrite(0, fromSeq(2, "agent:eve"))
	b.pass(31 * day)
	r := b.retain(audit.RetainRequest{})
	if len(r.Histories) != 1 || r.Histories[0].ID != l.ids[1] || len(r.Broken) != 1 || r.Broken[0] != l.ids[0] {
		t.Errorf("rewritten: %+v", r)
	}
	var heads []byte
	if err := raw.QueryRow("SELECT heads FROM anchors WHERE number = 1").Scan(&heads); err != nil {
		t.Fatal(err)
	}
	var tree record.Tree
	anew := []record.Head{}
	for i, id := range l.ids {
		last := f.history(i)[0]
		anew = append(anew, record.Head{Instance: id, Seq: last.Seq, Hash: last.Hash})
		leaf, err := anew[i].Leaf()
		if err != nil {
			t.Fatal(err)
		}
		tree.Append(leaf)
	}
	f.run("UPDATE anchors SET heads = ?", record.EncodeHeads(tree, anew))
	_, err = b.Retain(t.Context(), operator, audit.RetainRequest{})
	var e *engine.Error
	if !errors.As(err, &e) || e.Code != engine.CodeUnavailable || !strings.Contains(e.Hint, "gavel verify") {
		t.Errorf("with other heads: %v", err)
	}
}

// A signed removal must not hide a forged one.
func TestRetainKeepsForgedRemovals(t *testing.T) {
	key := newSigner(t)
	b := fadingBench(t, memory.New(), key)
	id := b.faded()
	b.anchor()
	b.forge(id, 1, func(*record.Truncation) {})
	if _, err := b.Undo(t.Context(), operator, engine.UndoRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	b.moved(agent, id, "back", `{}`, "a")
	b.moved(agent, id, "go", `{}`, "b")
	b.moved(agent, id, "go", `{}`, "c")
	b.pass(31 * day)
	r := b.retain(audit.RetainRequest{})
	for _, h := range r.Histories {
		if h.UpTo >= 4 {
			t.Errorf("the forged event was removed: %+v", h)
		}
	}
	v, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{key.Verifier()}})
	if err != nil || len(v.Problems) != 1 || v.Problems[0].Kind != audit.BreakAnchor {
		t.Errorf("%+v, %v", v, err)
	}
}

// Without the key, another process writes the first anchor during a removal, or a removal happens during
// that anchor: either way the rest verifies.
func TestVerifyAfterAnchorsOvertakeRemovals(t *testing.T) {
	check := func(t *testing.T, b *bench, key *record.Signer, shortened int64) {
		t.Helper()
		r, err := b.Verify(t.Context(), auditor, audit.VerifyRequest{Keys: []*record.Verifier{key.Verifier()}})
		if err != nil || !r.Clean() || r.Shortened != shortened || r.Anchors != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	t.Run("the anchor is first", func(t *testing.T) {
		db, key := &describeConflict{Store: memory.New()}, newSigner(t)
		b := fadingBench(t, db, nil)
		anchorer := newBenchOn(t, db.Store).signedBy(key)
		b.faded()
		b.pass(31 * day)
		db.before = func() { anchorer.anchor() }
		if r := b.retain(audit.RetainRequest{}); len(r.Histories) != 0 || r.Kept[audit.KeptMoved] != 1 {
			t.Errorf("%+v", r)
		}
		check(t, anchorer, key, 0)
	})
	t.Run("the removal is first", func(t *testing.T) {
		db, key := &overtakenAnchors{lapsing: lapsing{Store: memory.New()}}, newSigner(t)
		b := fadingBench(t, db.Store, nil)
		anchorer := newBenchOn(t, db).signedBy(key)
		b.faded()
		b.pass(31 * day)
		db.first = func() {
			if r := b.retain(audit.RetainRequest{}); len(r.Histories) != 1 {
				t.Errorf("%+v", r)
			}
		}
		anchorer.anchor()
		check(t, anchorer, key, 1)
	})
}
