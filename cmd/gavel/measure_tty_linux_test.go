package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gavel-mcp/gavel/internal/term"
)

// openTerminal returns a terminal; other reads what is written to it.
func openTerminal(t *testing.T) (tty, other *os.File) {
	t.Helper()
	other, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = other.Close() })
	unlocked := 0
	if err := unix.IoctlSetPointerInt(int(other.Fd()), unix.TIOCSPTLCK, unlocked); err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(other.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = tty.Close() })
	return tty, other
}

// readTerminal writes END and returns everything that the terminal received.
func readTerminal(t *testing.T, tty, other *os.File) string {
	t.Helper()
	if _, err := io.WriteString(tty, "END"); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for part := make([]byte, 4096); !strings.HasSuffix(shown.String(), "END"); {
		n, err := other.Read(part)
		if err != nil {
			t.Fatalf("%v after %q", err, shown.String())
		}
		shown.Write(part[:n])
	}
	return shown.String()
}

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
