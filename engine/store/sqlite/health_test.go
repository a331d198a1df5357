package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// CheckWritable writes to an idle store, but not to one with a recent write.
func TestCheckWritableProbes(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	check := func(when string, probes uint64) {
		t.Helper()
		before, log := s.Stats().Batches, readLog(t, path)
		if err := s.CheckWritable(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.Stats().Batches - before; got != probes {
			t.Errorf("%s: %d transactions, want %d", when, got, probes)
		}
		if written := !bytes.Equal(log, readLog(t, path)); written != (probes > 0) {
			t.Errorf("%s: the log was written to: %t", when, written)
		}
	}
	check("before the first write", 1)
	check("just after a write", 0)
	s.AgeHealth(2 * time.Second)
	check("idle again", 1)
	if _, err := sqlite.Inspect(t.Context(), path); err != nil {
		t.Errorf("after a probe: %v", err)
	}
}

func readLog(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// CheckWritable returns the result of the last write. Failures are counted by class; errors of the caller are not
// counted.
func TestFailuresAreCounted(t *testing.T) {
	path := newPath(t)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), first); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("got %v", err)
	}
	if err := s.CheckWritable(t.Context()); err != nil {
		t.Errorf("after a conflict: %v", err)
	}
	release := lock(t, path)
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(2), `{}`)); !errors.Is(err, sqlite.ErrBusy) {
		t.Fatalf("got %v, want ErrBusy", err)
	}
	if err := s.CheckWritable(t.Context()); !errors.Is(err, sqlite.ErrBusy) {
		t.Errorf("a store that is locked: %v", err)
	}
	release()
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(2), `{}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckWritable(t.Context()); err != nil {
		t.Errorf("a store that is free again: %v", err)
	}
	for class, n := range s.Stats().Failures {
		if want := uint64(0); class == "locked" && n != 1 || class != "locked" && n != want {
			t.Errorf("%s: %d", class, n)
		}
	}
}

// A store without its log is not writable, with or without writes.
func TestCheckWritableSeesFilesTakenAway(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)); err != nil {
		t.Fatal(err)
	}
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(path+"-wal", away); err != nil {
		t.Skipf("open files cannot be moved here: %v", err)
	}
	if err := s.CheckWritable(context.Background()); !errors.Is(err, sqlite.ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
}

// Read errors are not reported as write errors.
func TestReadErrorsAreNamed(t *testing.T) {
	for want, codes := range map[error][]int{
		sqlite.ErrDiskRead: {266, 522, 1802, 5642, 8458}, // SQLITE_IOERR_READ, _SHORT_READ, _FSTAT, _SEEK, _CORRUPTFS
		sqlite.ErrDisk:     {778, 1034},                  // _WRITE, _FSYNC
	} {
		for _, code := range codes {
			if got := sqlite.KnownCode(code); !errors.Is(got, want) {
				t.Errorf("%d: got %v, want %v", code, got, want)
			}
		}
	}
	for err, want := range map[error]string{sqlite.ErrDiskRead: "read_error", sqlite.ErrDisk: "write_error"} {
		if got := sqlite.FailureClass(err); got != want {
			t.Errorf("%v is counted as %s, want %s", err, got, want)
		}
	}
}

func TestStats(t *testing.T) {
	s := openAt(t, newPath(t))
	defer s.Close()
	before := s.Stats()
	for i := range 3 {
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(i+1), `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)); err == nil {
		t.Fatal("the same instance twice")
	}
	after := s.Stats()
	if after.Writes-before.Writes != 3 || after.Batches-before.Batches != 3 || after.Queued != 0 || after.Bytes == 0 {
		t.Errorf("before %+v, after three writes and a refusal %+v", before, after)
	}
}
