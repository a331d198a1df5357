//go:build unix

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gavel-mcp/gavel/internal/cli"
)

// socketPair returns two blocking ends; the second is for a child process.
func socketPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	ours, theirs = os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

// TestSharedPipeTurnsNonBlocking: a process that shares gavel's stdin and stdout makes them non-blocking while gavel
// reads. gavel keeps serving, including answers larger than the socket's buffer, and ends within a second after its
// input.
func TestSharedPipeTurnsNonBlocking(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	toIn, in := socketPair(t)
	fromOut, out := socketPair(t)
	var stderr lockedBuffer
	cmd := exec.Command("gavel", "mcp", "--store", "memory")
	cmd.Env = cli.WithoutSettings(os.Environ())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := out.Close(); err != nil { // otherwise the end of the answers is not detected
		t.Fatal(err)
	}
	send := func(line string) {
		t.Helper()
		if _, err := io.WriteString(toIn, line+"\n"); err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
	}
	lines := bufio.NewReaderSize(fromOut, 1<<20)
	hear := func(want string) {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Fatalf("%v, %.300q instead of %s\n%s", err, line, want, stderr.String())
		}
	}

	send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	hear(`"id":0`)
	if err := unix.SetNonblock(int(in.Fd()), true); err != nil { // shared with the process
		t.Fatal(err)
	}
	for range 3 { // the blocked read ends with the first line
		send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		hear(`"id":1`)
	}

	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := toIn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("it ends with %v\n%s", err, stderr.String())
	}
}

// SIGHUP lets an operator lift a quarantine; it does not end the server.
func TestHangupForgivesQuarantinedScripts(t *testing.T) {
	t.Parallel()
	s := launch(t, "--store", "memory")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !strings.Contains(s.stderr.String(), "quarantined scripts may run again"); {
		s.must("workflow.list", object{}) // it is running, and this logs an event to wait for
		if time.Since(began) > patience {
			t.Fatalf("nothing was said of it: %s", s.stderr)
		}
	}
	s.must("workflow.list", object{})
}
