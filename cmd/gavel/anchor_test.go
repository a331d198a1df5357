package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
)

// A server anchors periodically if there are new events, and once more when it stops.
func TestServersAnchor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key, err := record.GenerateSigner("test")
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		sys, err := openSystem(t.Context(), log, storePlace{path: gavel.Memory}, equipment{anchors: key})
		if err != nil {
			t.Fatal(err)
		}
		defer sys.Close()
		flags := anchorFlags{AnchorEvery: 10 * time.Minute, AnchorFile: filepath.Join(t.TempDir(), "notes")}
		stop := flags.watch(t.Context(), log, sys)
		start := func() {
			t.Helper()
			if _, err := sys.Engine.Start(t.Context(), gavel.Operator, engine.StartRequest{Type: "w"}); err != nil {
				t.Fatal(err)
			}
		}
		anchors := func(want int) {
			t.Helper()
			synctest.Wait()
			got := 0
			for _, err := range sys.Auditor.Anchors(t.Context(), gavel.Operator, 0) {
				if err != nil {
					t.Fatal(err)
				}
				got++
			}
			p, err := readPublished(flags.AnchorFile)
			if got != want || len(p.notes) != want || err != nil {
				t.Fatalf("%d anchors, %d published, want %d; %v", got, len(p.notes), want, err)
			}
		}
		if _, err := sys.Engine.Define(t.Context(), gavel.Operator, engine.DefineRequest{
			Source: "test", Document: []byte(`{"name":"w","initialState":"a","states":{"a":{"transitions":{"x":"a"}}}}`),
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Minute) //nolint:forbidigo // the synctest clock
		anchors(1)                   // the definition
		start()
		time.Sleep(4 * time.Minute) //nolint:forbidigo // the synctest clock
		anchors(1)
		time.Sleep(2 * time.Minute) //nolint:forbidigo // the synctest clock
		anchors(2)
		time.Sleep(time.Hour) //nolint:forbidigo // the synctest clock
		anchors(2)
		start()
		stop()
		anchors(3)
		start()
		time.Sleep(time.Hour) //nolint:forbidigo // the synctest clock
		anchors(3)            // the server has stopped
	})
}

func TestAnchorFilesSurviveWhatWasCutShort(t *testing.T) {
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
	p, err := readPublished(path)
	if err != nil || len(p.notes) != 0 {
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
		p, err := readPublished(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, note := range p.notes {
			if !slices.Contains(notes, note) {
				t.Fatalf("cut at %d: a note that was never written: %q", cut, note)
			}
		}
		if number, note := p.last(); number != int64(len(p.notes)) || number > 0 && note != notes[number-1] {
			t.Errorf("cut at %d: the last of %d is %d", cut, len(p.notes), number)
		}
		if err := p.append(notes[len(p.notes):]); err != nil {
			t.Fatal(err)
		}
		again, err := readPublished(path)
		if err != nil || !slices.Equal(again.notes, notes) || again.torn > 2 {
			t.Fatalf("cut at %d: %d notes, %d torn, %v", cut, len(again.notes), again.torn, err)
		}
	}
}

func TestPublicKeysOfAFile(t *testing.T) {
	t.Parallel()
	var lines []string
	for range 2 {
		key, err := record.GenerateSigner("test")
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, key.Verifier().String())
	}
	path := filepath.Join(t.TempDir(), "keys")
	for text, want := range map[string]int{
		lines[0]: 1, "# the old one\n" + strings.Join(lines, "\n\n") + "\n": 2, "": -1, "# nothing\n": -1, lines[0] + "\nx\n": -1,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := readVerifiers([]string{path})
		if want < 0 && err == nil || want >= 0 && (err != nil || len(keys) != want) {
			t.Errorf("%q: %d keys, %v", text, len(keys), err)
		}
	}
}
