//nolint:thelper // what takes a T here is part of the test, not a helper

package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// Reads and writes that meet a damaged page report the damage, the file and what to do.
func TestDamagedPage(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path)
	var inst record.Instance
	for i := range 50 {
		c := storetest.Start(t, storetest.ID(i), `{"a":"`+strings.Repeat("x", 3000)+`"}`)
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		inst = c.Next
	}
	roots := rootPages(t, s, "contexts", "sqlite_autoindex_instances_1", "events_seq")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for table, page := range roots {
		t.Run(table, func(t *testing.T) {
			damaged := newPath(t)
			damage(t, path, damaged, page)
			s := openAt(t, damaged) // the pages needed to open it are intact
			defer s.Close()
			errs := map[string]error{"write": s.Commit(t.Context(), storetest.Advance(t, inst, "reviewing", `{"n":1}`))}
			if table != "events_seq" {
				_, errs["read"] = s.Load(t.Context(), inst.ID)
			}
			for what, err := range errs {
				switch {
				case !errors.Is(err, sqlite.ErrCorrupt):
					t.Errorf("%s: got %v, want ErrCorrupt", what, err)
				case !strings.Contains(err.Error(), damaged) || !strings.Contains(err.Error(), "gavel repair"):
					t.Errorf("%s: it names neither the file nor the cure: %v", what, err)
				}
			}
		})
	}
}

func rootPages(t *testing.T, s *sqlite.Store, names ...string) map[string]int64 {
	t.Helper()
	roots := map[string]int64{}
	for _, name := range names {
		var page int64
		if err := s.ReaderDB().QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = ?", name).Scan(&page); err != nil {
			t.Fatal(err)
		}
		roots[name] = page
	}
	return roots
}

const pageBytes = 4096

// damage copies a closed store and overwrites part of a page.
func damage(t *testing.T, from, to string, page int64) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	copy(content[(page-1)*pageBytes:], bytes.Repeat([]byte{0xff}, 64))
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// A store whose files were removed acknowledges no more writes, because they would be lost with the process.
func TestFilesTakenAway(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open files cannot be taken away there")
	}
	for name, take := range map[string]func(path string) error{
		"deleted":           os.Remove,
		"moved":             func(path string) error { return os.Rename(path, path+".old") },
		"without its log":   func(path string) error { return os.Remove(path + "-wal") },
		"without its index": func(path string) error { return os.Remove(path + "-shm") },
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			s := openAt(t, path)
			defer s.Close()
			if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)); err != nil {
				t.Fatal(err)
			}
			if err := take(path); err != nil {
				t.Fatal(err)
			}
			err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(2), `{}`))
			if !errors.Is(err, sqlite.ErrGone) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want ErrGone", err)
			}
		})
	}
}

// Once a file is put back, the store works again without being reopened.
func TestFilePutBack(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open files cannot be taken away there")
	}
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	c := storetest.Start(t, storetest.ID(1), `{}`)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), c); !errors.Is(err, sqlite.ErrGone) {
		t.Fatalf("got %v, want ErrGone", err)
	}
	if err := os.Rename(path+".old", path); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), c); err != nil {
		t.Errorf("after it was put back: %v", err)
	}
}

// A write that arrives after another one failed because the file is gone does not fail without a new check: the file
// may be back.
func TestWaitingCallersGetTheFailure(t *testing.T) {
	told, later := sqlite.FailedWhileAnsweringQueues(filepath.Join(t.TempDir(), "gone"))
	for i, err := range told {
		if !errors.Is(err, sqlite.ErrGone) {
			t.Errorf("write %d: got %v, want ErrGone", i, err)
		}
	}
	if later {
		t.Error("a write that came after the receiver answered with status answered by the look before it")
	}
}
