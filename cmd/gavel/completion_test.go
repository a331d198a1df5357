package main

import (
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/module"
)

func TestComplete(t *testing.T) {
	t.Parallel()
	var cmds commands
	parser, err := newParser(&cmds, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	top := strings.Fields("mcp serve health token config review lint graph schema instances script judge keys test history migrate version completion verify anchor " +
		"backup restore repair seal retain init try start advance status cursor")
	for _, c := range module.Commands("") {
		top = append(top, c.Name)
	}
	for _, tt := range []struct {
		line  string // a trailing space begins a new word
		want  []string
		files bool
	}{
		{line: "", want: top},
		{line: "in", want: []string{"init", "instances"}},
		{line: "try ", files: true},
		{line: "instances ", want: []string{"list", "show", "history", "timeline", "undo", "redo", "release"}},
		{line: "instances list --st", want: []string{"--state", "--status", "--store", "--store-key"}},
		{line: "instances list --status ", want: []string{"running", "complete", "cancelled"}},
		{line: "instances list --status c", want: []string{"complete", "cancelled"}},
		{line: "instances list --status=c", want: []string{"--status=complete", "--status=cancelled"}},
		{line: "instances list --status = c", want: []string{"complete", "cancelled"}}, // bash splits at =
		{line: "instances list --status =", want: []string{"running", "complete", "cancelled"}},
		{line: "instances list --store ", files: true},
		{line: "instances list --json --lo", want: []string{"--log-format", "--log-level"}},
		{line: "--log-level debug mcp --role a", want: []string{"agent", "auditor"}},
		{line: "lint ", files: true},
		{line: "lint a.json ", files: true},
		{line: "lint --strict ", files: true},
		{line: "completion ", want: []string{"bash", "zsh", "fish"}},
		{line: "completion bash "},
		{line: "graph --format m", want: []string{"mermaid"}},
		{line: "graph ", files: true},
		{line: "instances show "},
		{line: "review ", want: []string{"list", "watch", "show", "approve", "reject", "reopen", "give-up"}},
		{line: "review list --status s", want: []string{"stale", "superseded"}},
		{line: "evidence list --config ", files: true},
		{line: "chain ", want: []string{"lint", "graph", "run", "start", "list", "show", "signal", "cancel", "cancel-entry", "pause", "resume", "redrive"}},
		{line: "chain list --status ", want: []string{"queued", "running", "paused", "done", "failed", "cancelled"}},
		{line: "chain show "},
		{line: "chain run ", files: true},
		{line: "schedule ", want: []string{"list", "pause", "resume", "trigger"}},
		{line: "nonsense "},
		{line: "lint --nope="},
		{line: "version --", want: []string{"--help", "--log-format", "--log-level", "--json"}},
	} {
		got, files := completeWords(parser.Model, strings.Split(tt.line, " "))
		var words []string
		for _, c := range got {
			words = append(words, c.word)
		}
		if tt.line == "nonsense " {
			continue // only check that it does not panic
		}
		slices.Sort(words)
		slices.Sort(tt.want)
		if !slices.Equal(words, tt.want) || files != tt.files {
			t.Errorf("%q: got %q files=%v, want %q files=%v", tt.line, words, files, tt.want, tt.files)
		}
	}
	if got, _ := completeWords(parser.Model, nil); len(got) == 0 {
		t.Error("no words at all: nothing offered")
	}
}

// TestShellsLoadTheirScripts tests every installed shell.
func TestShellsLoadTheirScripts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ shell, script string }{
		{"bash", `source <(gavel completion bash); COMP_WORDS=(gavel instances li); COMP_CWORD=2; _gavel; echo "${COMPREPLY[@]}"`},
		{"zsh", `compdef() { :; }; source <(gavel completion zsh); words=(gavel instances li); CURRENT=3
			_describe() { print -r -- ${(P)2%%:*}; }; _files() { :; }; _gavel`},
		{"fish", `gavel completion fish | source; complete -C "gavel instances li"`},
	} {
		t.Run(tt.shell, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(tt.shell); err != nil {
				t.Skip("not installed")
			}
			needsProgram(t)
			out, err := exec.CommandContext(t.Context(), tt.shell, "-c", tt.script).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if word, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\t"); word != "list" {
				t.Errorf("got %q, want list", out)
			}
		})
	}
}
