package record_test

import (
	"errors"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
)

// A note is valid for one truncation of one instance, and for nothing else.
func TestNoteBelongsToOneTruncation(t *testing.T) {
	key := signer(t, "a")
	said := record.Truncation{UpTo: 3, Hash: record.HashNote("h"), Count: 3, Revision: 2, Floor: record.HashNote("f")}
	note, err := key.Sign(said.Text("wf-1"))
	if err != nil {
		t.Fatal(err)
	}
	anchor, err := key.Sign(record.Anchor{Origin: "a", Number: 1, Time: epoch}.Text())
	if err != nil {
		t.Fatal(err)
	}
	forged, err := signer(t, "a").Sign(said.Text("wf-1"))
	if err != nil {
		t.Fatal(err)
	}
	said.Note = note
	tests := map[string]struct {
		instance string
		change   func(*record.Truncation)
		want     error
	}{
		"as it was":         {"wf-1", func(*record.Truncation) {}, nil},
		"another instance":  {"wf-2", func(*record.Truncation) {}, record.ErrNote},
		"a line of another": {"wf-1\"\nup to 3", func(*record.Truncation) {}, record.ErrNote},
		"another end":       {"wf-1", func(c *record.Truncation) { c.UpTo = 4 }, record.ErrNote},
		"another hash":      {"wf-1", func(c *record.Truncation) { c.Hash = record.HashNote("x") }, record.ErrNote},
		"another count":     {"wf-1", func(c *record.Truncation) { c.Count = 2 }, record.ErrNote},
		"another revision":  {"wf-1", func(c *record.Truncation) { c.Revision = 1 }, record.ErrNote},
		"another floor":     {"wf-1", func(c *record.Truncation) { c.Floor = record.HashNote("x") }, record.ErrNote},
		"no note":           {"wf-1", func(c *record.Truncation) { c.Note = "" }, record.ErrNote},
		"half a note":       {"wf-1", func(c *record.Truncation) { c.Note = note[:len(note)-9] }, record.ErrNote},
		"an anchor":         {"wf-1", func(c *record.Truncation) { c.Note = anchor }, record.ErrNote},
		"another's note":    {"wf-1", func(c *record.Truncation) { c.Note = forged }, record.ErrSignature},
	}
	for name, tt := range tests {
		cut := said
		tt.change(&cut)
		if err := cut.CheckNote(tt.instance, key.Verifier()); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		// Without keys, CheckNote cannot tell who signed the note.
		if err := cut.CheckNote(tt.instance); (err == nil) != (tt.want == nil || name == "another's note") {
			t.Errorf("%s, without keys: %v", name, err)
		}
	}
	if _, err := record.ParseAnchor(said.Text("wf-1")); !errors.Is(err, record.ErrAnchor) {
		t.Errorf("a truncation passes for an anchor: %v", err)
	}
}
