package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
)

func TestAnchorFilesSurviveTornWrites(t *testing.T) {
	t.Parallel()
	key, err := record.GenerateSigner("test")
	if err != nil {
		t.Fatal(err)
	}
	var notes []string
	for n := range int64(3) {
		note, err := key.Sign(record.Anchor{Origin: "test", Number: n + 1, Time: time.Unix(n, 0)}.Text())
		if err != nil {
			t.Fatal(err)
		}
		notes = append(notes, note)
	}
	path := filepath.Join(t.TempDir(), "notes")
	p, err := ReadAnchorLog(path)
	if err != nil || len(p.Notes) != 0 {
		t.Fatalf("a file that is not there: %+v, %v", p, err)
	}
	if err := p.append(notes[:2]); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 { // the file stays readable wherever a write was cut off
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := ReadAnchorLog(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, note := range p.Notes {
			if !slices.Contains(notes, note) {
				t.Fatalf("cut at %d: a note that was never written: %q", cut, note)
			}
		}
		if number, note := p.last(); number != int64(len(p.Notes)) || number > 0 && note != notes[number-1] {
			t.Errorf("cut at %d: the last of %d is %d", cut, len(p.Notes), number)
		}
		if err := p.append(notes[len(p.Notes):]); err != nil {
			t.Fatal(err)
		}
		again, err := ReadAnchorLog(path)
		if err != nil || !slices.Equal(again.Notes, notes) || again.Torn > 2 {
			t.Fatalf("cut at %d: %d notes, %d torn, %v", cut, len(again.Notes), again.Torn, err)
		}
	}
}
