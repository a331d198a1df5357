//go:build unix

package term

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestBlockingFileWaits reads before data is available, and writes more than fits.
func TestBlockingFileWaits(t *testing.T) {
	t.Parallel()
	ours, theirs := socketPair(t)
	if err := unix.SetNonblock(int(theirs.Fd()), true); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Read(make([]byte, 1)); err == nil {
		t.Fatal("the end does not turn non-blocking: this tests nothing")
	}
	in, out := BlockingReader(theirs), BlockingWriter(theirs)
	sent := bytes.Repeat([]byte("gavel"), 1<<20) // much more than a socket buffers
	wrote := make(chan error, 1)
	go func() {
		n, err := out.Write(sent)
		if err == nil && n != len(sent) {
			err = io.ErrShortWrite
		}
		wrote <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(ours, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%v, or other bytes than were written", err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1)
	go func() {
		raw, err := io.ReadAll(in)
		if err != nil {
			raw = []byte(err.Error())
		}
		read <- string(raw)
	}()
	for _, word := range []string{"one ", "two"} {
		if _, err := io.WriteString(ours, word); err != nil {
			t.Fatal(err)
		}
	}
	if err := ours.Close(); err != nil {
		t.Fatal(err)
	}
	if text := <-read; text != "one two" {
		t.Errorf("read %q", text)
	}
	plain := strings.NewReader("x")
	if BlockingReader(plain) != io.Reader(plain) {
		t.Error("a reader that is no file is not left as it is")
	}
}
