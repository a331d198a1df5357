package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/term"
)

// On a terminal, each step is one line once it has ended, with its duration. The step in progress is a line that is
// replaced, and leaves nothing behind.
func TestChainRunOnTerminal(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "naps.yaml")
	put(t, file, `
name: naps
steps:
  - {id: both, type: parallel, tasks: [{id: long, type: wait, seconds: 2}, {id: short, type: wait, seconds: 0.05}]}
`)
	tty, other := openTerminal(t)
	var out bytes.Buffer
	if code := run(t.Context(), []string{"chain", "run", file}, strings.NewReader(""), &out, tty); code != term.ExitOK {
		t.Fatalf("exit code %d", code)
	}
	raw := readTerminal(t, tty, other)
	if !strings.Contains(raw, "\runder way both/long, both/short") {
		t.Errorf("it does not say what is under way: %q", raw)
	}
	var lines []string // the final text: what follows the last carriage return
	for line := range strings.Lines(strings.ReplaceAll(raw, "\r\n", "\n")) {
		line = strings.TrimRight(line, "\n")
		lines = append(lines, line[strings.LastIndex(line, "\r")+1:])
	}
	shown := strings.Join(lines, "\n")
	if !regexp.MustCompile(`^\S*done     \S* both/short  \S+\n\S*done     \S* both/long  \S+\n\S*done     \S* both  \S+\nEND$`).MatchString(shown) {
		t.Errorf("the terminal shows\n%s\n%q", shown, raw)
	}
}
