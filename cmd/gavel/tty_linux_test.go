package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
