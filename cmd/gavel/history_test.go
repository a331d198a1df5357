package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/internal/module"
)

// The records page shows the output of a search.
func TestHistoryPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	definition, err := filepath.Abs("../../testdata/workflows/document-review.json")
	if err != nil {
		t.Fatal(err)
	}
	const agent = `workflow.start {"type":"document-review","context":{"documentId":"doc-7","reviewer":"ada"}}
workflow.advance {"id":"$ID","action":"submit","data":{"documentId":"doc-7","reviewer":"ada"}}
workflow.advance {"id":"$ID","action":"approve","data":{}}
workflow.judge.validate {"id":"$ID","action":"approve","data":{"comments":"ok"}}
workflow.advance {"id":"$ID","action":"approve","data":{"comments":"ok"}}
workflow.advance {"id":"$ID","action":"approve","data":{"comments":"Compared with the specification; two typos corrected."}}
`
	if err := os.WriteFile(filepath.Join(dir, "agent"), []byte(agent), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		needsProgram(t)
		cmd := exec.CommandContext(t.Context(), name)
		for _, a := range args {
			cmd.Args = append(cmd.Args, strings.Trim(a, "'")) // as a shell does
		}
		cmd.Dir, cmd.Env = dir, append(withoutSettings(os.Environ()), "GAVEL_STORE=gavel.db")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
		return "$ " + name + " " + strings.Join(args, " ") + "\n" + string(out) + "\n"
	}
	run("play", "agent", "--definitions", definition)
	showsAt(t, "../../docs/records.md", "history", strings.TrimSuffix(
		run("gavel", "history", "search", "--outcome", "reject", "--since", "24h")+
			run("gavel", "history", "search", "--text", "'comments required'")+
			run("gavel", "history", "stats", "--workflow", "document-review"), "\n"))
}

func TestMoments(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"24h":                       now.Add(-24 * time.Hour),
		"1h30m":                     now.Add(-90 * time.Minute),
		"0s":                        now,
		"2d":                        time.Date(2026, 2, 27, 12, 0, 0, 0, time.UTC),
		"2026-01-02":                time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		"2026-01-02T03:04:05Z":      time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		"2026-01-02T03:04:05+01:00": time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC),
	} {
		if got, err := parseMoment("--since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "-1h", "-2d", "d", "2026-13-01", "99999999999999999999d", "1 h"} {
		if _, err := parseMoment("--since", text, now); err == nil || !strings.Contains(err.Error(), "--since") {
			t.Errorf("%q: %v", text, err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		_, _ = parseMoment("--since", rapid.String().Draw(r, "text"), now) // never panics
	})
}

// A file is replaced atomically: until then, its old content remains.
func TestWriteWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := module.WriteWhole(path, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	holds := func(want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		files, _ := os.ReadDir(dir)
		if err != nil || string(got) != want || len(files) != 1 {
			t.Errorf("%q, %v, among %v; want %q alone", got, err, files, want)
		}
	}
	holds("before")
	if err := module.WriteWhole(path, func(w io.Writer) error { _, err := io.WriteString(w, "after"); return err }); err != nil {
		t.Error(err)
	}
	holds("after")
}
