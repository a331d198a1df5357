package engine_test

import (
	"bytes"
	"database/sql"
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
)

// ledger is a store file with three instances, and the published notes of its anchors.
type ledger struct {
	path, older string // older is a copy from before the second anchor
	ids         []string
	notes       []string
	key         *record.Signer
}

const ledgerWorkflow = `{"name":"ledger","initialState":"a","states":{
	"a":{"transitions":{"go":{"target":"b","requiredFields":["why"]}}},
	"b":{"transitions":{"back":"a","end":"c"}},
	"c":{"final":true}}}`

// newLedger writes a store through the engine: moves, a refusal, a pre-check, a checkpoint, a rollback,
// and two anchors.
func newLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{path: filepath.Join(t.TempDir(), "gavel.db"), key: newSigner(t)}
	b, closing := l.open(t, l.path)
	b.define(operator, ledgerWorkflow)
	for range 3 {
		id := b.start(agent, "ledger", `{"title":"x"}`).ID
		l.ids = append(l.ids, id)
		b.advance(agent, id, "go", `{"why":"first"}`)
		b.advance(agent, id, "go", `{}`) // not legal here: refused
		cp := b.checkpoint(agent, id)
		b.advance(agent, id, "back", `{"n":1}`)
		if _, err := b.Rollback(t.Context(), operator, engine.RollbackRequest{ID: id, CheckpointID: cp}); err != nil {
			t.Fatal(err)
		}
	}
	l.anchor(t, b)
	closing()
	l.older = l.path + ".older"
	copyFile(t, l.path, l.older)
	b, closing = l.open(t, l.path)
	for _, id := range l.ids[:2] {
		b.advance(agent, id, "back", `{}`)
		b.advance(agent, id, "go", `{"why":"second"}`)
	}
	l.anchor(t, b)
	closing()
	return l
}

func newSigner(t testing.TB) *record.Signer {
	t.Helper()
	s, err := record.GenerateSigner("gavel-test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (l *ledger) open(t *testing.T, path string) (*bench, func()) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, db, nil, func(c *engine.Config) { c.RuleKey = ruleKey }).signedBy(l.key)
	return b, func() {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *ledger) anchor(t *testing.T, b *bench) {
	t.Helper()
	a, err := b.Anchor(t.Context(), operator)
	if err != nil || !a.Written {
		t.Fatalf("anchor: %+v, %v", a, err)
	}
	l.notes = append(l.notes, a.Note)
}

func (b *bench) checkpoint(p engine.Principal, id string) string {
	b.t.Helper()
	cp, err := b.Checkpoint(b.t.Context(), p, engine.CheckpointRequest{ID: id})
	if err != nil {
		b.t.Fatal(err)
	}
	return cp.CheckpointID
}

// verify verifies the file with the key and all published anchors.
func (l *ledger) verify(t *testing.T, path string) audit.VerifyReport {
	t.Helper()
	return l.verifyWith(t, path, audit.VerifyRequest{Keys: []*record.Verifier{l.key.Verifier()}, Published: l.notes})
}

func (l *ledger) verifyWith(t *testing.T, path string, req audit.VerifyRequest) audit.VerifyReport {
	t.Helper()
	b, closing := l.open(t, path)
	defer closing()
	r, err := b.Verify(t.Context(), auditor, req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantBreak is a break that a report must contain: kind, instance (an index, -1 for none) and event.
type wantBreak struct {
	kind     audit.Break
	instance int
	seq      int64
}

func (l *ledger) check(t *testing.T, r audit.VerifyReport, want []wantBreak) {
	t.Helper()
	var got []wantBreak
	for _, p := range r.Problems {
		got = append(got, wantBreak{p.Kind, slices.Index(l.ids, p.Instance), p.Seq})
		if p.Message == "" || strings.HasPrefix(p.Message, "%") {
			t.Errorf("a problem without a sentence: %+v", p)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v\n%+v", got, want, r.Problems)
	}
	if r.Clean() != (len(want) == 0) {
		t.Errorf("clean is %t", r.Clean())
	}
}

func TestVerifyFindsEveryTampering(t *testing.T) {
	l := newLedger(t)
	if r := l.verify(t, l.path); !r.Clean() || r.Instances != 3 || r.Events != 22 || r.Anchors != 2 || !r.Signed || r.Published != 2 || r.Unanchored != 0 {
		t.Fatalf("untouched: %+v", r)
	}
	const none = -1
	tests := map[string]struct {
		tamper func(f file)
		want   []wantBreak
	}{
		"a byte of a value": {
			func(f file) {
				f.run("UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'first', 'furst') AS BLOB) WHERE n = ? AND seq = 2", f.n(1))
			},
			[]wantBreak{{audit.BreakEdited, 1, 2}},
		},
		"a byte of the syntax": {
			func(f file) {
				f.run("UPDATE events SET body = CAST('x' || substr(CAST(body AS TEXT), 2) AS BLOB) WHERE n = ? AND seq = 3", f.n(1))
			},
			[]wantBreak{{audit.BreakEdited, 1, 3}},
		},
		"a byte of its number": {
			func(f file) {
				f.run(`UPDATE events SET body = CAST(replace(CAST(body AS TEXT), '"seq":4', '"seq":9') AS BLOB) WHERE n = ? AND seq = 4`, f.n(1))
			},
			[]wantBreak{{audit.BreakEdited, 1, 4}},
		},
		"two events": {
			func(f file) {
				f.run("UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'agent:ada', 'agent:eda') AS BLOB) WHERE n = ? AND seq IN (2, 5)", f.n(0))
			},
			[]wantBreak{{audit.BreakEdited, 0, 2}, {audit.BreakEdited, 0, 5}},
		},
		"a hash":            {func(f file) { f.run("UPDATE events SET hash = zeroblob(32) WHERE n = ? AND seq = 3", f.n(0)) }, []wantBreak{{audit.BreakEdited, 0, 3}}},
		"the last hash":     {func(f file) { f.run("UPDATE events SET hash = zeroblob(32) WHERE n = ? AND seq = 8", f.n(0)) }, []wantBreak{{audit.BreakEdited, 0, 8}}},
		"a previous hash":   {func(f file) { f.run("UPDATE events SET prev_hash = zeroblob(32) WHERE n = ? AND seq = 3", f.n(0)) }, []wantBreak{{audit.BreakEdited, 0, 3}}},
		"a first that says": {func(f file) { f.run("UPDATE events SET prev_hash = zeroblob(32) WHERE n = ? AND seq = 1", f.n(0)) }, []wantBreak{{audit.BreakEdited, 0, 1}}},
		"one event, sealed anew": {
			func(f file) {
				all := f.history(0)
				before, err := record.FoldAt(eachOf(all[:2]), 0)
				if err != nil {
					f.t.Fatal(err)
				}
				e := all[2]
				e.Principal = "agent:eve"
				sealed, _, err := record.Seal(before, e, nil)
				if err != nil {
					f.t.Fatal(err)
				}
				f.put(0, sealed)
			},
			[]wantBreak{{audit.BreakEdited, 0, 3}},
		},

		"an event deleted":      {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq = 3", f.n(0)) }, []wantBreak{{audit.BreakDeleted, 0, 3}}},
		"the first deleted":     {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq = 1", f.n(0)) }, []wantBreak{{audit.BreakDeleted, 0, 1}}},
		"three deleted":         {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq IN (2, 3, 6)", f.n(0)) }, []wantBreak{{audit.BreakDeleted, 0, 2}, {audit.BreakDeleted, 0, 6}}},
		"deleted and closed up": {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq = 3", f.n(0)); f.shift(0, 3, -1) }, []wantBreak{{audit.BreakDeleted, 0, 3}}},

		"two neighbours reordered": {func(f file) { f.swap(0, 4, 5) }, []wantBreak{{audit.BreakReordered, 0, 4}, {audit.BreakReordered, 0, 5}}},
		"two others reordered":     {func(f file) { f.swap(0, 2, 7) }, []wantBreak{{audit.BreakReordered, 0, 2}, {audit.BreakReordered, 0, 7}}},

		"an event inserted": {func(f file) { f.insert(0, 4) }, []wantBreak{{audit.BreakInserted, 0, 5}}},
		"one inserted at the end": {
			func(f file) { f.insert(0, 8) },
			[]wantBreak{{audit.BreakRow, 0, 8}},
		},
		"a copy inserted": {
			func(f file) {
				f.shift(0, 4, 1)
				f.run(`INSERT INTO events (n, seq, revision, kind, at, prev_hash, hash, body)
					SELECT n, 5, revision, kind, at, prev_hash, hash, body FROM events WHERE n = ? AND seq = 2`, f.n(0))
			},
			[]wantBreak{{audit.BreakInserted, 0, 5}},
		},

		"the end cut":             {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq > 6", f.n(0)) }, []wantBreak{{audit.BreakTruncated, 0, 7}}},
		"everything cut":          {func(f file) { f.run("DELETE FROM events WHERE n = ?", f.n(0)) }, []wantBreak{{audit.BreakTruncated, 0, 1}}},
		"cut, and the row too":    {func(f file) { f.cut(0, 7) }, []wantBreak{{audit.BreakTruncated, 0, 8}}},
		"cut below both anchors":  {func(f file) { f.cut(0, 3) }, []wantBreak{{audit.BreakRow, 0, 0}, {audit.BreakTruncated, 0, 6}}},
		"cut of the third":        {func(f file) { f.cut(2, 5) }, []wantBreak{{audit.BreakTruncated, 2, 6}}},
		"the instance is deleted": {func(f file) { f.remove(2) }, []wantBreak{{audit.BreakMissing, 2, 6}}},

		"two instances swapped": {
			func(f file) {
				a, b := f.n(0), f.n(1)
				f.run("UPDATE instances SET id = 'x' WHERE n = ?", a)
				f.run("UPDATE instances SET id = ? WHERE n = ?", f.ledger.ids[0], b)
				f.run("UPDATE instances SET id = ? WHERE n = ?", f.ledger.ids[1], a)
			},
			[]wantBreak{{audit.BreakSwapped, 0, 1}, {audit.BreakSwapped, 1, 1}},
		},
		"two histories swapped": {
			func(f file) {
				f.run("UPDATE events SET n = -n WHERE n = ?", f.n(0))
				f.run("UPDATE events SET n = ? WHERE n = ?", f.n(0), f.n(1))
				f.run("UPDATE events SET n = ? WHERE n < 0", f.n(1))
			},
			[]wantBreak{{audit.BreakSwapped, 0, 1}, {audit.BreakSwapped, 1, 1}},
		},
		"two events swapped": {
			func(f file) {
				a, b := f.n(0), f.n(1)
				f.run("UPDATE events SET n = -1 WHERE n = ? AND seq = 4", a)
				f.run("UPDATE events SET n = ? WHERE n = ? AND seq = 4", a, b)
				f.run("UPDATE events SET n = ? WHERE n = -1", b)
			},
			[]wantBreak{{audit.BreakSwapped, 0, 4}, {audit.BreakSwapped, 1, 4}},
		},
		"two contexts swapped": {
			func(f file) {
				f.run("UPDATE contexts SET n = -1 WHERE n = ?", f.n(0))
				f.run("UPDATE contexts SET n = ? WHERE n = ?", f.n(0), f.n(2))
				f.run("UPDATE contexts SET n = ? WHERE n = -1", f.n(2))
			},
			[]wantBreak{{audit.BreakRow, 0, 8}, {audit.BreakRow, 2, 6}},
		},

		"a state":           {func(f file) { f.run("UPDATE instances SET state = 'c', status = 'complete' WHERE n = ?", f.n(1)) }, []wantBreak{{audit.BreakRow, 1, 8}}},
		"an owner":          {func(f file) { f.run("UPDATE instances SET owner = 'agent:eve' WHERE n = ?", f.n(1)) }, []wantBreak{{audit.BreakRow, 1, 8}}},
		"facts":             {func(f file) { f.run(`UPDATE instances SET facts = CAST('{}' AS BLOB) WHERE n = ?`, f.n(1)) }, []wantBreak{{audit.BreakRow, 1, 8}}},
		"facts, unreadable": {func(f file) { f.run(`UPDATE instances SET facts = CAST('{' AS BLOB) WHERE n = ?`, f.n(1)) }, []wantBreak{{audit.BreakUnreadable, 1, 0}}},
		"a context":         {func(f file) { f.run(`UPDATE contexts SET context = CAST('{}' AS BLOB) WHERE n = ?`, f.n(1)) }, []wantBreak{{audit.BreakRow, 1, 8}}},
		"no context":        {func(f file) { f.run(`DELETE FROM contexts WHERE n = ?`, f.n(1)) }, []wantBreak{{audit.BreakRow, 1, 0}}},
		"a head":            {func(f file) { f.run("UPDATE instances SET head = zeroblob(32) WHERE n = ?", f.n(1)) }, []wantBreak{{audit.BreakRow, 1, 8}}},
		"a number":          {func(f file) { f.run("UPDATE instances SET seq = 7 WHERE n = ?", f.n(1)) }, []wantBreak{{audit.BreakRow, 1, 7}, {audit.BreakRow, 1, 7}, {audit.BreakInserted, 1, 8}}},
		"a snapshot": {func(f file) {
			f.run(`UPDATE snapshots SET context = CAST('{}' AS BLOB) WHERE n = ? AND revision = 2`, f.n(1))
		}, []wantBreak{{audit.BreakRow, 1, 0}}},
		"a snapshot, broken": {func(f file) {
			f.run(`UPDATE snapshots SET instance = CAST('{' AS BLOB) WHERE n = ? AND revision = 2`, f.n(1))
		}, []wantBreak{{audit.BreakRow, 1, 0}}},
		"a definition": {
			func(f file) {
				f.run(`UPDATE definitions SET document = CAST(replace(CAST(document AS TEXT), '["why"]', '[]') AS BLOB)`)
			},
			[]wantBreak{{audit.BreakRow, none, 0}, {audit.BreakRow, 0, 0}, {audit.BreakRow, 1, 0}, {audit.BreakRow, 2, 0}},
		},

		"a rewritten history":           {func(f file) { f.rewrite(2, func(e *record.Event) { e.Principal = "agent:eve" }) }, []wantBreak{{audit.BreakAnchor, 2, 6}}},
		"a rewritten end":               {func(f file) { f.rewrite(0, fromSeq(7, "agent:eve")) }, []wantBreak{{audit.BreakAnchor, 0, 8}}},
		"two rewritten histories":       {func(f file) { f.rewrite(0, fromSeq(2, "x")); f.rewrite(1, fromSeq(1, "x")) }, []wantBreak{{audit.BreakAnchor, 0, 6}, {audit.BreakAnchor, 1, 6}}},
		"rewritten, and the heads too":  {func(f file) { f.rewrite(2, fromSeq(2, "x")); f.reanchor(nil) }, []wantBreak{{audit.BreakAnchor, none, 0}}},
		"rewritten, with another key":   {func(f file) { f.rewrite(2, fromSeq(2, "x")); f.reanchor(newSigner(f.t)) }, []wantBreak{{audit.BreakAnchor, none, 0}}},
		"rewritten, without the anchor": {func(f file) { f.rewrite(2, fromSeq(2, "x")); f.run("DELETE FROM anchors") }, []wantBreak{{audit.BreakAnchor, none, 0}, {audit.BreakRolledBack, none, 0}}},

		"the last anchor deleted":  {func(f file) { f.run("DELETE FROM anchors WHERE number = 2") }, []wantBreak{{audit.BreakRolledBack, none, 0}}},
		"the first anchor deleted": {func(f file) { f.run("DELETE FROM anchors WHERE number = 1") }, []wantBreak{{audit.BreakAnchor, none, 0}}},
		"a byte of a note": {func(f file) {
			f.run("UPDATE anchors SET note = replace(note, 'events 18', 'events 17') WHERE number = 1")
		}, []wantBreak{{audit.BreakAnchor, none, 0}}},
		"a byte of the heads": {func(f file) {
			f.run("UPDATE anchors SET heads = CAST(replace(CAST(heads AS TEXT), ?, 'wf-x') AS BLOB) WHERE number = 2", f.ledger.ids[0])
		}, []wantBreak{{audit.BreakAnchor, none, 0}}},
		"an anchor's time": {func(f file) { f.run("UPDATE anchors SET at = at + 1 WHERE number = 1") }, []wantBreak{{audit.BreakAnchor, none, 0}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gavel.db")
			copyFile(t, l.path, path)
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			tt.tamper(file{t, db, l})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			l.check(t, l.verify(t, path), tt.want)
		})
	}
	t.Run("an older copy put back", func(t *testing.T) {
		l.check(t, l.verify(t, l.older), []wantBreak{{audit.BreakRolledBack, none, 0}})
	})
	t.Run("an older copy put back and used", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "gavel.db")
		copyFile(t, l.older, path)
		b, closing := l.open(t, path)
		b.advance(agent, l.ids[0], "end", `{}`)
		if a, err := b.Anchor(t.Context(), operator); err != nil || a.Number != 2 {
			t.Fatalf("%+v, %v", a, err)
		}
		closing()
		l.check(t, l.verify(t, path), []wantBreak{{audit.BreakRolledBack, none, 0}})
	})
}

// The truncation event vouches for the beginning of a shortened history.
func TestVerifyShortenedHistories(t *testing.T) {
	l := newLedger(t)
	b, closing := l.open(t, l.path)
	inst := b.load(l.ids[2])
	sealed, next := shortened(t, b, inst, 3, l.key)
	floor := b.at(inst.ID, 3)
	if err := b.store.Commit(t.Context(), store.Commit{Expect: inst.Seq, Events: sealed, Next: next, Floor: &floor}); err != nil {
		t.Fatal(err)
	}
	closing()
	if r := l.verify(t, l.path); !r.Clean() || r.Shortened != 1 || r.Unanchored != 1 {
		t.Fatalf("untouched: %+v", r)
	}
	tests := map[string]struct {
		tamper func(f file)
		want   []wantBreak
	}{
		"what it begins with": {
			func(f file) {
				f.run(`UPDATE snapshots SET context = CAST('{"title":"y"}' AS BLOB) WHERE n = ? AND revision = 2`, f.n(2))
			},
			[]wantBreak{{audit.BreakRow, 2, 0}, {audit.BreakRow, 2, 4}},
		},
		"nothing to begin with": {
			func(f file) { f.run(`DELETE FROM snapshots WHERE n = ?`, f.n(2)) },
			[]wantBreak{{audit.BreakRow, 2, 4}},
		},
		"one more event": {
			func(f file) { f.run(`DELETE FROM events WHERE n = ? AND seq = 4`, f.n(2)) },
			[]wantBreak{{audit.BreakDeleted, 2, 1}},
		},
		"the event that says so": {
			func(f file) { f.run(`DELETE FROM events WHERE n = ? AND seq = 7`, f.n(2)) },
			[]wantBreak{{audit.BreakDeleted, 2, 1}, {audit.BreakTruncated, 2, 7}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gavel.db")
			copyFile(t, l.path, path)
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			tt.tamper(file{t, db, l})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			l.check(t, l.verify(t, path), tt.want)
		})
	}
}

// Every byte of every event counts, wherever it is in the file.
func TestVerifyFindsAFlippedByteOfTheFile(t *testing.T) {
	l := newLedger(t)
	db, err := sql.Open("sqlite", l.path)
	if err != nil {
		t.Fatal(err)
	}
	f := file{t, db, l}
	histories := [][]record.Event{f.history(0), f.history(1), f.history(2)}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "gavel.db")
	tried := 0
	for i, history := range histories {
		for _, e := range history {
			start := e.Body()[:100] // long ones span several pages
			broken, offset := bytes.Clone(whole), int(e.Seq*13)%100
			at := bytes.Index(broken, start)
			if at < 0 {
				continue
			}
			for at >= 0 { // a page that was split has a copy of it
				broken[at+offset] ^= 1 << (e.Seq % 7)
				at = bytes.Index(broken, start)
			}
			if err := os.WriteFile(path, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			l.check(t, l.verify(t, path), []wantBreak{{audit.BreakEdited, i, e.Seq}})
			tried++
		}
	}
	if tried < 10 {
		t.Errorf("only %d events were found in the file", tried)
	}
}
