package engine_test

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/sqlitestore"
)

// ledger is a store file with three instances, and what was published of its anchors.
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

// newLedger writes a store through the engine: moves, a refusal, a pre-check, a
// checkpoint, a rollback, and two anchors.
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
	store, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, store, nil, func(c *engine.Config) { c.Anchors = l.key })
	return b, func() {
		if err := store.Close(); err != nil {
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

// verify verifies the file with everything that could be known of it.
func (l *ledger) verify(t *testing.T, path string) engine.VerifyReport {
	t.Helper()
	return l.verifyWith(t, path, engine.VerifyRequest{Keys: []*record.Verifier{l.key.Verifier()}, Published: l.notes})
}

func (l *ledger) verifyWith(t *testing.T, path string, req engine.VerifyRequest) engine.VerifyReport {
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

// file is a store's file in the hands of someone with SQL.
type file struct {
	t *testing.T
	*sql.DB
	ledger *ledger
}

func (f file) run(query string, args ...any) {
	f.t.Helper()
	result, err := f.Exec(query, args...)
	if err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		f.t.Fatalf("%s: changed nothing, %v", query, err)
	}
}

// n is the key of an instance's rows.
func (f file) n(i int) (n int64) {
	f.t.Helper()
	if err := f.QueryRow("SELECT n FROM instances WHERE id = ?", f.ledger.ids[i]).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// history reads all events of an instance.
func (f file) history(i int) (all []record.Event) {
	f.t.Helper()
	rows, err := f.Query("SELECT prev_hash, hash, body FROM events WHERE n = ? ORDER BY seq", f.n(i))
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var prev, hash, body []byte
		if err := rows.Scan(&prev, &hash, &body); err != nil {
			f.t.Fatal(err)
		}
		e, err := record.Decode(body)
		if err != nil {
			f.t.Fatal(err)
		}
		e.PrevHash, e.Hash = hex.EncodeToString(prev), hex.EncodeToString(hash)
		all = append(all, e)
	}
	if rows.Err() != nil {
		f.t.Fatal(rows.Err())
	}
	return all
}

// put writes an event over the one in its place.
func (f file) put(i int, e record.Event) {
	f.t.Helper()
	f.run("UPDATE events SET prev_hash = ?, hash = ?, body = ? WHERE n = ? AND seq = ?", raw(f.t, e.PrevHash), raw(f.t, e.Hash), e.Body(), f.n(i), e.Seq)
}

// stand writes where an instance stands.
func (f file) stand(i int, inst record.Instance) {
	f.t.Helper()
	facts, err := json.Marshal(inst.Facts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.run("UPDATE instances SET seq = ?, revision = ?, state = ?, status = ?, head = ?, facts = ?, updated_at = ?, owner = ? WHERE n = ?",
		inst.Seq, inst.Revision, inst.State, string(inst.Status), raw(f.t, inst.Head), facts, inst.UpdatedAt.UnixNano(), inst.Owner, f.n(i))
	f.run("UPDATE contexts SET context = ? WHERE n = ?", []byte(inst.Context), f.n(i))
}

// shift moves the numbers of all events behind one.
func (f file) shift(i int, behind, by int64) {
	f.t.Helper()
	f.run("UPDATE events SET seq = -seq WHERE n = ? AND seq > ?", f.n(i), behind)
	f.run("UPDATE events SET seq = -seq + ? WHERE n = ? AND seq < 0", by, f.n(i))
}

// swap swaps the places of two events.
func (f file) swap(i int, a, b int64) {
	f.t.Helper()
	f.run("UPDATE events SET seq = -1 WHERE n = ? AND seq = ?", f.n(i), a)
	f.run("UPDATE events SET seq = ? WHERE n = ? AND seq = ?", a, f.n(i), b)
	f.run("UPDATE events SET seq = ? WHERE n = ? AND seq = -1", b, f.n(i))
}

// rewrite seals a history anew, with a change of every event, and all that is kept
// beside it: what someone can do who has the file and this program, but not the key.
func (f file) rewrite(i int, change func(*record.Event)) {
	f.t.Helper()
	var at record.Instance
	then := map[int64]record.Instance{}
	for _, e := range f.history(i) {
		change(&e)
		var restored *record.Instance
		if e.Rollback != nil {
			r := then[e.Rollback.Restores]
			restored = &r
		}
		sealed, next, err := record.Seal(at, e, restored)
		if err != nil {
			f.t.Fatal(err)
		}
		at, then[next.Revision] = next, next
		f.put(i, sealed)
		if e.Kind == record.Checkpointed || e.Kind == record.RolledBack {
			bare := next
			bare.Context = nil
			doc, err := json.Marshal(bare)
			if err != nil {
				f.t.Fatal(err)
			}
			f.run("UPDATE snapshots SET instance = ?, context = ? WHERE n = ? AND revision = ?", doc, []byte(next.Context), f.n(i), next.Revision)
		}
	}
	f.stand(i, at)
}

func raw(t *testing.T, hash string) []byte {
	t.Helper()
	b, err := hex.DecodeString(hash)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// break is what a report must say: kind, instance (an index, -1 for none) and event.
type wantBreak struct {
	kind     engine.Break
	instance int
	seq      int64
}

func (l *ledger) check(t *testing.T, r engine.VerifyReport, want []wantBreak) {
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
			[]wantBreak{{engine.BreakEdited, 1, 2}},
		},
		"a byte of the syntax": {
			func(f file) {
				f.run("UPDATE events SET body = CAST('x' || substr(CAST(body AS TEXT), 2) AS BLOB) WHERE n = ? AND seq = 3", f.n(1))
			},
			[]wantBreak{{engine.BreakEdited, 1, 3}},
		},
		"a byte of its number": {
			func(f file) {
				f.run(`UPDATE events SET body = CAST(replace(CAST(body AS TEXT), '"seq":4', '"seq":9') AS BLOB) WHERE n = ? AND seq = 4`, f.n(1))
			},
			[]wantBreak{{engine.BreakEdited, 1, 4}},
		},
		"two events": {
			func(f file) {
				f.run("UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'agent:ada', 'agent:eda') AS BLOB) WHERE n = ? AND seq IN (2, 5)", f.n(0))
			},
			[]wantBreak{{engine.BreakEdited, 0, 2}, {engine.BreakEdited, 0, 5}},
		},
		"a hash":            {func(f file) { f.run("UPDATE events SET hash = zeroblob(32) WHERE n = ? AND seq = 3", f.n(0)) }, []wantBreak{{engine.BreakEdited, 0, 3}}},
		"the last hash":     {func(f file) { f.run("UPDATE events SET hash = zeroblob(32) WHERE n = ? AND seq = 8", f.n(0)) }, []wantBreak{{engine.BreakEdited, 0, 8}}},
		"a previous hash":   {func(f file) { f.run("UPDATE events SET prev_hash = zeroblob(32) WHERE n = ? AND seq = 3", f.n(0)) }, []wantBreak{{engine.BreakEdited, 0, 3}}},
		"a first that says": {func(f file) { f.run("UPDATE events SET prev_hash = zeroblob(32) WHERE n = ? AND seq = 1", f.n(0)) }, []wantBreak{{engine.BreakEdited, 0, 1}}},
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
			[]wantBreak{{engine.BreakEdited, 0, 3}},
		},

		"an event deleted":      {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq = 3", f.n(0)) }, []wantBreak{{engine.BreakDeleted, 0, 3}}},
		"the first deleted":     {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq = 1", f.n(0)) }, []wantBreak{{engine.BreakDeleted, 0, 1}}},
		"three deleted":         {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq IN (2, 3, 6)", f.n(0)) }, []wantBreak{{engine.BreakDeleted, 0, 2}, {engine.BreakDeleted, 0, 6}}},
		"deleted and closed up": {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq = 3", f.n(0)); f.shift(0, 3, -1) }, []wantBreak{{engine.BreakDeleted, 0, 3}}},

		"two neighbours reordered": {func(f file) { f.swap(0, 4, 5) }, []wantBreak{{engine.BreakReordered, 0, 4}, {engine.BreakReordered, 0, 5}}},
		"two others reordered":     {func(f file) { f.swap(0, 2, 7) }, []wantBreak{{engine.BreakReordered, 0, 2}, {engine.BreakReordered, 0, 7}}},

		"an event inserted": {func(f file) { f.insert(0, 4) }, []wantBreak{{engine.BreakInserted, 0, 5}}},
		"one inserted at the end": {
			func(f file) { f.insert(0, 8) },
			[]wantBreak{{engine.BreakRow, 0, 8}},
		},
		"a copy inserted": {
			func(f file) {
				f.shift(0, 4, 1)
				f.run(`INSERT INTO events (n, seq, revision, kind, at, prev_hash, hash, body)
					SELECT n, 5, revision, kind, at, prev_hash, hash, body FROM events WHERE n = ? AND seq = 2`, f.n(0))
			},
			[]wantBreak{{engine.BreakInserted, 0, 5}},
		},

		"the end cut":             {func(f file) { f.run("DELETE FROM events WHERE n = ? AND seq > 6", f.n(0)) }, []wantBreak{{engine.BreakTruncated, 0, 7}}},
		"everything cut":          {func(f file) { f.run("DELETE FROM events WHERE n = ?", f.n(0)) }, []wantBreak{{engine.BreakTruncated, 0, 1}}},
		"cut, and the row too":    {func(f file) { f.cut(0, 7) }, []wantBreak{{engine.BreakTruncated, 0, 8}}},
		"cut below both anchors":  {func(f file) { f.cut(0, 3) }, []wantBreak{{engine.BreakTruncated, 0, 6}}},
		"cut of the third":        {func(f file) { f.cut(2, 5) }, []wantBreak{{engine.BreakTruncated, 2, 6}}},
		"the instance is deleted": {func(f file) { f.remove(2) }, []wantBreak{{engine.BreakMissing, 2, 6}}},

		"two instances swapped": {
			func(f file) {
				a, b := f.n(0), f.n(1)
				f.run("UPDATE instances SET id = 'x' WHERE n = ?", a)
				f.run("UPDATE instances SET id = ? WHERE n = ?", f.ledger.ids[0], b)
				f.run("UPDATE instances SET id = ? WHERE n = ?", f.ledger.ids[1], a)
			},
			[]wantBreak{{engine.BreakSwapped, 0, 1}, {engine.BreakSwapped, 1, 1}},
		},
		"two histories swapped": {
			func(f file) {
				f.run("UPDATE events SET n = -n WHERE n = ?", f.n(0))
				f.run("UPDATE events SET n = ? WHERE n = ?", f.n(0), f.n(1))
				f.run("UPDATE events SET n = ? WHERE n < 0", f.n(1))
			},
			[]wantBreak{{engine.BreakSwapped, 0, 1}, {engine.BreakSwapped, 1, 1}},
		},
		"two events swapped": {
			func(f file) {
				a, b := f.n(0), f.n(1)
				f.run("UPDATE events SET n = -1 WHERE n = ? AND seq = 4", a)
				f.run("UPDATE events SET n = ? WHERE n = ? AND seq = 4", a, b)
				f.run("UPDATE events SET n = ? WHERE n = -1", b)
			},
			[]wantBreak{{engine.BreakSwapped, 0, 4}, {engine.BreakSwapped, 1, 4}},
		},
		"two contexts swapped": {
			func(f file) {
				f.run("UPDATE contexts SET n = -1 WHERE n = ?", f.n(0))
				f.run("UPDATE contexts SET n = ? WHERE n = ?", f.n(0), f.n(2))
				f.run("UPDATE contexts SET n = ? WHERE n = -1", f.n(2))
			},
			[]wantBreak{{engine.BreakRow, 0, 8}, {engine.BreakRow, 2, 6}},
		},

		"a state":           {func(f file) { f.run("UPDATE instances SET state = 'c', status = 'complete' WHERE n = ?", f.n(1)) }, []wantBreak{{engine.BreakRow, 1, 8}}},
		"an owner":          {func(f file) { f.run("UPDATE instances SET owner = 'agent:eve' WHERE n = ?", f.n(1)) }, []wantBreak{{engine.BreakRow, 1, 8}}},
		"facts":             {func(f file) { f.run(`UPDATE instances SET facts = CAST('{}' AS BLOB) WHERE n = ?`, f.n(1)) }, []wantBreak{{engine.BreakRow, 1, 8}}},
		"facts, unreadable": {func(f file) { f.run(`UPDATE instances SET facts = CAST('{' AS BLOB) WHERE n = ?`, f.n(1)) }, []wantBreak{{engine.BreakUnreadable, 1, 0}}},
		"a context":         {func(f file) { f.run(`UPDATE contexts SET context = CAST('{}' AS BLOB) WHERE n = ?`, f.n(1)) }, []wantBreak{{engine.BreakRow, 1, 8}}},
		"no context":        {func(f file) { f.run(`DELETE FROM contexts WHERE n = ?`, f.n(1)) }, []wantBreak{{engine.BreakRow, 1, 0}}},
		"a head":            {func(f file) { f.run("UPDATE instances SET head = zeroblob(32) WHERE n = ?", f.n(1)) }, []wantBreak{{engine.BreakRow, 1, 8}}},
		"a number":          {func(f file) { f.run("UPDATE instances SET seq = 7 WHERE n = ?", f.n(1)) }, []wantBreak{{engine.BreakRow, 1, 7}, {engine.BreakRow, 1, 7}, {engine.BreakInserted, 1, 8}}},
		"a snapshot": {func(f file) {
			f.run(`UPDATE snapshots SET context = CAST('{}' AS BLOB) WHERE n = ? AND revision = 2`, f.n(1))
		}, []wantBreak{{engine.BreakRow, 1, 4}}},
		"a snapshot, broken": {func(f file) {
			f.run(`UPDATE snapshots SET instance = CAST('{' AS BLOB) WHERE n = ? AND revision = 2`, f.n(1))
		}, []wantBreak{{engine.BreakRow, 1, 0}}},
		"a definition": {
			func(f file) {
				f.run(`UPDATE definitions SET document = CAST(replace(CAST(document AS TEXT), '["why"]', '[]') AS BLOB)`)
			},
			[]wantBreak{{engine.BreakRow, 0, 0}, {engine.BreakRow, 1, 0}, {engine.BreakRow, 2, 0}},
		},

		"a rewritten history":           {func(f file) { f.rewrite(2, func(e *record.Event) { e.Principal = "agent:eve" }) }, []wantBreak{{engine.BreakAnchor, 2, 6}}},
		"a rewritten end":               {func(f file) { f.rewrite(0, fromSeq(7, "agent:eve")) }, []wantBreak{{engine.BreakAnchor, 0, 8}}},
		"two rewritten histories":       {func(f file) { f.rewrite(0, fromSeq(2, "x")); f.rewrite(1, fromSeq(1, "x")) }, []wantBreak{{engine.BreakAnchor, 0, 6}, {engine.BreakAnchor, 1, 6}}},
		"rewritten, and the heads too":  {func(f file) { f.rewrite(2, fromSeq(2, "x")); f.reanchor(nil) }, []wantBreak{{engine.BreakAnchor, none, 0}}},
		"rewritten, with another key":   {func(f file) { f.rewrite(2, fromSeq(2, "x")); f.reanchor(newSigner(f.t)) }, []wantBreak{{engine.BreakAnchor, none, 0}}},
		"rewritten, without the anchor": {func(f file) { f.rewrite(2, fromSeq(2, "x")); f.run("DELETE FROM anchors") }, []wantBreak{{engine.BreakRolledBack, none, 0}}},

		"the last anchor deleted":  {func(f file) { f.run("DELETE FROM anchors WHERE number = 2") }, []wantBreak{{engine.BreakRolledBack, none, 0}}},
		"the first anchor deleted": {func(f file) { f.run("DELETE FROM anchors WHERE number = 1") }, []wantBreak{{engine.BreakAnchor, none, 0}}},
		"a byte of a note": {func(f file) {
			f.run("UPDATE anchors SET note = replace(note, 'events 18', 'events 17') WHERE number = 1")
		}, []wantBreak{{engine.BreakAnchor, none, 0}}},
		"a byte of the heads": {func(f file) {
			f.run("UPDATE anchors SET heads = CAST(replace(CAST(heads AS TEXT), ?, 'wf-x') AS BLOB) WHERE number = 2", f.ledger.ids[0])
		}, []wantBreak{{engine.BreakAnchor, none, 0}}},
		"an anchor's time": {func(f file) { f.run("UPDATE anchors SET at = at + 1 WHERE number = 1") }, []wantBreak{{engine.BreakAnchor, none, 0}}},
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
		l.check(t, l.verify(t, l.older), []wantBreak{{engine.BreakRolledBack, none, 0}})
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
		l.check(t, l.verify(t, path), []wantBreak{{engine.BreakRolledBack, none, 0}})
	})
}

func eachOf(events []record.Event) func(func(record.Event, error) bool) {
	return func(yield func(record.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func fromSeq(seq int64, principal string) func(*record.Event) {
	return func(e *record.Event) {
		if e.Seq >= seq {
			e.Principal = principal
		}
	}
}

// insert puts a well made refusal behind an event.
func (f file) insert(i int, behind int64) {
	f.t.Helper()
	all := f.history(i)
	at, err := record.FoldAt(eachOf(all[:behind]), 0)
	if err != nil {
		f.t.Fatal(err)
	}
	e := all[2] // the refusal
	e.From, e.To = at.State, at.State
	sealed, _, err := record.Seal(at, e, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if behind < int64(len(all)) {
		f.shift(i, behind, 1)
	}
	f.run("INSERT INTO events (n, seq, revision, kind, at, prev_hash, hash, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		f.n(i), sealed.Seq, sealed.Revision, string(sealed.Kind), sealed.Time.UnixNano(), raw(f.t, sealed.PrevHash), raw(f.t, sealed.Hash), sealed.Body())
}

// cut removes the end of a history and lets the instance stand where it ends now.
func (f file) cut(i int, seq int64) {
	f.t.Helper()
	at, err := record.FoldAt(eachOf(f.history(i)[:seq]), 0)
	if err != nil {
		f.t.Fatal(err)
	}
	f.run("DELETE FROM events WHERE n = ? AND seq > ?", f.n(i), seq)
	_, _ = f.Exec("DELETE FROM snapshots WHERE n = ? AND revision > ?", f.n(i), at.Revision)
	f.stand(i, at)
}

// remove removes every trace of an instance.
func (f file) remove(i int) {
	f.t.Helper()
	n := f.n(i)
	for _, table := range []string{"events", "snapshots", "contexts", "instances"} {
		f.run("DELETE FROM "+table+" WHERE n = ?", n)
	}
}

// reanchor makes the last anchor anew over the heads as they are now: with a key, or
// with the note as it was.
func (f file) reanchor(key *record.Signer) {
	f.t.Helper()
	var heads []record.Head
	for i, id := range f.ledger.ids {
		all := f.history(i)
		last := all[min(5, len(all)-1)]
		heads = append(heads, record.Head{Instance: id, Seq: last.Seq, Hash: last.Hash})
	}
	slices.SortFunc(heads, func(a, b record.Head) int { return strings.Compare(a.Instance, b.Instance) })
	var tree record.Tree
	for _, h := range heads {
		leaf, err := h.Leaf()
		if err != nil {
			f.t.Fatal(err)
		}
		tree.Append(leaf)
	}
	f.run("UPDATE anchors SET heads = ? WHERE number = 1", record.EncodeHeads(tree, heads))
	if key == nil {
		return
	}
	text, err := record.NoteText(f.ledger.notes[0])
	if err != nil {
		f.t.Fatal(err)
	}
	said, err := record.ParseAnchor(text)
	if err != nil {
		f.t.Fatal(err)
	}
	said.Root = tree.Root()
	note, err := key.Sign(said.Text())
	if err != nil {
		f.t.Fatal(err)
	}
	f.run("UPDATE anchors SET note = ? WHERE number = 1", note)
}
