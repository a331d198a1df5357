package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
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
		cmd.Dir, cmd.Env = dir, append(cli.WithoutSettings(os.Environ()), "GAVEL_STORE=gavel.db")
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

// A file is replaced atomically: until then, its old content remains.
func TestWriteWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := cli.WriteFileAtomically(path, func(w io.Writer) error {
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
	if err := cli.WriteFileAtomically(path, func(w io.Writer) error { _, err := io.WriteString(w, "after"); return err }); err != nil {
		t.Error(err)
	}
	holds("after")
}
