package engine_test

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

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

// n returns the key of an instance's rows.
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

// put overwrites the event at the same place.
func (f file) put(i int, e record.Event) {
	f.t.Helper()
	f.run("UPDATE events SET prev_hash = ?, hash = ?, body = ? WHERE n = ? AND seq = ?", raw(f.t, e.PrevHash), raw(f.t, e.Hash), e.Body(), f.n(i), e.Seq)
}

// stand writes the stored position of an instance.
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

// shift moves the numbers of all events after one.
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

// rewrite seals a history again with every event changed, and everything stored with it. Someone who has
// the file and this program, but not the key, could do that.
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
			doc, err := rows.EncodeSnapshot(next)
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

// insert adds a well-formed refusal after an event.
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

// cut removes the end of a history and sets the instance to the new end.
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

// reanchor recreates the last anchor over the present heads: signed with a key, or with the old note.
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
	text, err := record.ReadNoteText(f.ledger.notes[0])
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

// at returns an instance as it was after an event.
func (b *bench) at(id string, seq int64) record.Instance {
	b.t.Helper()
	var events []record.Event
	for e, err := range b.store.Events(b.t.Context(), store.EventQuery{Instance: id}) {
		if err != nil {
			b.t.Fatal(err)
		}
		if e.Seq <= seq {
			events = append(events, e)
		}
	}
	at, err := record.FoldAt(eachOf(events), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	return at
}

// shortened returns the event that removes everything up to a seq, and the resulting instance. The event
// is signed unless the key is nil.
func shortened(t testing.TB, b *bench, inst record.Instance, upTo int64, key *record.Signer) ([]record.Event, record.Instance) {
	t.Helper()
	floor := b.at(inst.ID, upTo)
	cut := record.Truncation{UpTo: floor.Seq, Hash: floor.Head, Count: floor.Seq, Revision: floor.Revision, Floor: record.DigestState(floor)}
	if key != nil {
		note, err := key.Sign(cut.Text(inst.ID))
		if err != nil {
			t.Fatal(err)
		}
		cut.Note = note
	}
	sealed, next, err := record.Seal(inst, record.Event{
		Kind: record.Truncated, Time: inst.UpdatedAt, Principal: operator.ID, Role: string(operator.Role), Truncation: &cut,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return []record.Event{sealed}, next
}
