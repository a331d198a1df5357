package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// The error names the process that holds the lock.
func TestLockHolderIsNamed(t *testing.T) {
	path := newPath(t)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other := newPath(t)
	if err := openAt(t, other).Close(); err != nil {
		t.Fatal(err)
	}
	_, releaseOther := holdElsewhere(t, other) // of another store: not in the way
	defer releaseOther()
	pid, release := holdElsewhere(t, path)
	defer release()
	want := fmt.Sprintf("held by process %d (", pid)
	check := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", what, err, want)
		}
	}
	check("a write", s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)))
	check("its outcome", s.CheckWritable(t.Context()))
	s.AgeHealth(time.Minute)
	check("a probe", s.CheckWritable(t.Context()))
	s.AgeHealth(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check("a probe that is given up", s.CheckWritable(ctx))
}

// holdElsewhere makes another process hold the lock of a store until release is called.
func holdElsewhere(t *testing.T, path string) (pid int, release func()) {
	t.Helper()
	p := spawn(t, "hold the lock", path, "")
	if _, err := fmt.Fscanln(p.acks, new(string)); err != nil {
		t.Fatalf("%v\n%s", err, p.stderr)
	}
	return p.Process.Pid, func() {
		if err := errors.Join(p.gate.Close(), p.Wait()); err != nil {
			t.Error(err)
		}
	}
}

// Only lines of /proc/locks with a write lock on the byte count.
func TestWriteLocksAreRecognized(t *testing.T) {
	for line, want := range map[string]bool{
		"1: POSIX  ADVISORY  WRITE 3568 fd:00:77 120 120": true,
		"1: POSIX  ADVISORY  WRITE 3568 fd:00:77 100 EOF": true,
		"1: POSIX  ADVISORY  READ 3568 fd:00:77 120 120":  false,
		"1: POSIX  ADVISORY  WRITE 3568 fd:00:78 120 120": false, // another file
		"1: POSIX  ADVISORY  WRITE 3568 fd:00:77 121 121": false, // another byte
		"1: POSIX  ADVISORY  WRITE 3568 fd:00:77 119 119": false,
		"1: POSIX  ADVISORY  WRITE 0 fd:00:77 120 120":    false,
		"1: -> POSIX  ADVISORY  WRITE 9 fd:00:77 120 120": false, // waits for the lock
	} {
		if pid, ok := sqlite.WriteLock(line, 77, 120, 120); ok != want || ok && pid != 3568 {
			t.Errorf("%s: got %d, %t", line, pid, ok)
		}
	}
}

// A process that may open no more files reports that, and not missing rights.
func TestTooManyFilesIsNamed(t *testing.T) {
	path := newPath(t)
	if err := openAt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	got := lines(t, spawn(t, "run out of files", path, ""))
	for _, what := range []string{"open", "read", "create"} {
		if !strings.Contains(got[what], sqlite.ErrTooManyFiles.Error()) {
			t.Errorf("%s: %q", what, got[what])
		}
	}
}

func runOutOfFiles(cfg sqlite.Config, out io.Writer) {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, cfg)
	if err != nil {
		say(out, "open", err)
		return
	}
	limit := syscall.Rlimit{Cur: 64, Max: 64}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		say(out, "limit", err)
		return
	}
	for {
		if _, err := os.Open(os.DevNull); err != nil {
			break
		}
	}
	_, err = sqlite.OpenToRead(ctx, cfg.Path)
	say(out, "open", err)
	_, err = sqlite.Open(ctx, sqlite.Config{Path: cfg.Path + ".new"})
	say(out, "create", err)
	err = nil
	for conn := 0; err == nil && conn < 100; conn++ { // each reader takes a connection
		_, err = s.ReaderDB().Conn(ctx)
		if err == nil {
			_, err = s.Load(ctx, storetest.ID(1))
			if err != nil && strings.Contains(err.Error(), "not found") {
				err = nil
			}
		}
	}
	say(out, "read", err)
}
