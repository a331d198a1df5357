package engine_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
)

// Verification finds every change to a call in a store's file that was made without the key.
func TestATamperedCallIsFound(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	b, closing := l.open(t, l.path)
	b.define(operator, releaseFlow)
	id := b.approved()
	l.ids = append(l.ids, id)
	at := len(l.ids) - 1
	b.settle(id, b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo).CallID, engine.CallError, `{}`)
	b.moved(agent, id, "reset", `{}`, "approved")
	b.call(deploy(id, `{"version":"1.2"}`), engine.CallGo)
	open := b.load(id)
	l.anchor(t, b)
	closing()
	if found := l.outcome(t, func(file) error { return nil }); found != "" {
		t.Fatalf("untouched: %s", found)
	}
	last := func(f file, kind record.Kind) (e record.Event) {
		for _, e = range f.history(at) {
			if e.Kind == kind {
				return e
			}
		}
		t.Fatalf("no %s event", kind)
		return e
	}
	for name, change := range map[string]func(f file){
		"another gate": func(f file) {
			e := last(f, record.Called)
			f.run("UPDATE events SET body = ? WHERE n = ? AND seq = ?", bytes.Replace(e.Body(), []byte(deployTool), []byte("prod__revert"), 1), f.n(at), e.Seq)
		},
		"another outcome": func(f file) {
			e := last(f, record.Settled)
			f.run("UPDATE events SET body = ? WHERE n = ? AND seq = ?", bytes.Replace(e.Body(), []byte(`"outcome":"error"`), []byte(`"outcome":"ok"`), 1), f.n(at), e.Seq)
		},
		"a later deadline, and all sealed anew": func(f file) {
			f.rewrite(at, func(e *record.Event) {
				if e.Kind == record.Called {
					c := *e.Call
					c.Deadline = c.Deadline.AddDate(1, 0, 0)
					e.Call = &c
				}
			})
		},
		"the open call is forgotten": func(f file) {
			facts := open.Facts
			facts.Calls = nil
			raw, err := json.Marshal(facts)
			if err != nil {
				t.Fatal(err)
			}
			f.run("UPDATE instances SET facts = ? WHERE n = ?", raw, f.n(at))
		},
		"a call counts no more": func(f file) {
			facts := open.Facts
			facts.Called = nil
			raw, err := json.Marshal(facts)
			if err != nil {
				t.Fatal(err)
			}
			f.run("UPDATE instances SET facts = ? WHERE n = ?", raw, f.n(at))
		},
		"the end is cut off": func(f file) {
			f.run("DELETE FROM events WHERE n = ? AND seq = ?", f.n(at), open.Seq)
		},
	} {
		if found := l.outcome(t, func(f file) error { change(f); return nil }); found == "" {
			t.Errorf("%s: not found", name)
		}
	}
}
