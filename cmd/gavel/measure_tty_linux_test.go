package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/term"
)

// Progress is shown on a terminal only, not in a file.
func TestEvalProgress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manyCases(t, dir, 40)
	args := []string{"eval", "run", "--structural", filepath.Join(dir, "cases.jsonl")}

	tty, other := openTerminal(t)
	var out bytes.Buffer
	if code := run(t.Context(), args, strings.NewReader(""), &out, tty); code != term.ExitOK {
		t.Fatalf("exit code %d\n%s", code, out.String())
	}
	if got := readTerminal(t, tty, other); !strings.HasSuffix(got, "\r40 of 40 cases\r\nEND") {
		t.Errorf("the terminal shows %q", got)
	}
	if strings.Contains(out.String(), "of 40 cases\n") {
		t.Errorf("progress on stdout\n%s", out.String())
	}

	file, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), args, strings.NewReader(""), &out, file); code != term.ExitOK {
		t.Fatalf("exit code %d\n%s", code, out.String())
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file.Name()); err != nil || len(text) > 0 {
		t.Errorf("a file gets %q, %v", text, err)
	}
}
