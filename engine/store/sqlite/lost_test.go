package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// writtenStore returns an open store with some instances, all still in the log, and the acknowledged heads.
func writtenStore(t *testing.T, path string) (*sqlite.Store, map[string]string) {
	t.Helper()
	s := openAt(t, path)
	heads := map[string]string{}
	for n := range 20 {
		c := storetest.Start(t, storetest.ID(n), `{"a":"`+string(bytes.Repeat([]byte("x"), 3000))+`"}`)
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		heads[c.Next.ID] = c.Next.Head
	}
	return s, heads
}

// logAlone copies only the log of an open store to a separate folder.
func logAlone(t *testing.T, from string) string {
	t.Helper()
	path := newPath(t)
	log, err := os.ReadFile(from + "-wal")
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path+"-wal", log, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func checkHeads(t *testing.T, path string, heads map[string]string) {
	t.Helper()
	s, err := sqlite.OpenToRead(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id, head := range heads {
		if inst, err := s.Load(t.Context(), id); err != nil || inst.Head != head {
			t.Fatalf("%s was acknowledged and is lost: %v", id, err)
		}
	}
}

// A database that is missing or empty next to its log cannot be opened, and the log stays.
func TestLostDatabaseIsRefused(t *testing.T) {
	first := newPath(t)
	s, _ := writtenStore(t, first)
	defer s.Close()
	for name, empty := range map[string]bool{"missing": false, "empty": true} {
		t.Run(name, func(t *testing.T) {
			path := logAlone(t, first)
			if empty {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			log, err := os.ReadFile(path + "-wal")
			if err != nil {
				t.Fatal(err)
			}
			for what, open := range map[string]func() error{
				"open":    func() error { _, err := sqlite.Open(t.Context(), sqlite.Config{Path: path}); return err },
				"read":    func() error { _, err := sqlite.OpenToRead(t.Context(), path); return err },
				"inspect": func() error { _, err := sqlite.Inspect(t.Context(), path); return err },
				"copy":    func() error { _, err := sqlite.Copy(t.Context(), path, path+".copy", false); return err },
			} {
				if err := open(); !errors.Is(err, sqlite.ErrLostFile) {
					t.Errorf("%s: got %v, want ErrLostFile", what, err)
				}
			}
			if now, err := os.ReadFile(path + "-wal"); err != nil || !bytes.Equal(now, log) {
				t.Errorf("the log is not what it was: %d bytes, %v", len(now), err)
			}
			if info, err := os.Stat(path); err == nil && info.Size() > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a database was made: %v", err)
			}
		})
	}
}

// A log that is deleted while the store is open is immediately checkpointed into the database, so that nothing is
// lost when the process ends.
func TestDeletedLogIsCheckpointed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open files cannot be deleted there")
	}
	path := newPath(t)
	s, heads := writtenStore(t, path)
	defer s.Close()
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !s.LogSaved(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the deleted log was not folded into the database")
		}
	}
	left := newPath(t) // the file that remains if the process is killed now
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.Link(path, left)); err != nil {
		t.Fatal(err)
	}
	checkHeads(t, left, heads)
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(99), `{}`)); !errors.Is(err, sqlite.ErrGone) {
		t.Errorf("a write without a log: %v", err)
	}
}

// While the database has no name, the log that has one stays unchanged, even when the store is closed.
func TestLogStaysWhenTheDatabaseIsDeleted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open files cannot be deleted there")
	}
	path := newPath(t)
	s, heads := writtenStore(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	out := newPath(t)
	if err := os.MkdirAll(filepath.Dir(out), 0o700); err != nil {
		t.Fatal(err)
	}
	if saved, err := sqlite.Salvage(t.Context(), path, out); err != nil || !saved.Whole() {
		t.Fatalf("%+v, %v", saved, err)
	}
	checkHeads(t, out, heads)
}

// Reading a store creates only the -shm file, with or without a log.
func TestReadingCreatesNoFiles(t *testing.T) {
	path := newPath(t)
	s, heads := writtenStore(t, path)
	look := func(what string) {
		t.Helper()
		before, bytesBefore := folderOf(t, path)
		checkHeads(t, path, heads)
		after, bytesAfter := folderOf(t, path)
		after = slices.DeleteFunc(after, func(name string) bool { return filepath.Ext(name) == ".db-shm" && !slices.Contains(before, name) })
		if !slices.Equal(before, after) {
			t.Errorf("%s: %v became %v", what, before, after)
		}
		if !bytes.Equal(bytesBefore, bytesAfter) {
			t.Errorf("%s: the database was written to", what)
		}
	}
	look("open elsewhere")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	look("closed")
	r, err := sqlite.OpenToRead(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Commit(t.Context(), storetest.Start(t, storetest.ID(99), `{}`)); !errors.Is(err, sqlite.ErrReadOnly) {
		t.Errorf("a write: got %v, want ErrReadOnly", err)
	}
	for _, err := range r.Decisions(t.Context(), store.DecisionQuery{Workflow: "doc"}) {
		if err != nil {
			t.Errorf("a search: %v", err)
		}
	}
}

func folderOf(t *testing.T, path string) (names []string, database []byte) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err == nil {
		database, err = os.ReadFile(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, database
}

// Repair replays a lone log into a usable new store, and reports what the log does not contain.
func TestRepairOfALogAlone(t *testing.T) {
	first := newPath(t)
	s, heads := writtenStore(t, first)
	defer s.Close()
	salvage := func(t *testing.T, path string) (sqlite.Salvaged, string) {
		t.Helper()
		out := filepath.Join(t.TempDir(), "out.db")
		saved, err := sqlite.Salvage(context.Background(), path, out)
		if err != nil {
			t.Fatal(err)
		}
		return saved, out
	}
	t.Run("whole", func(t *testing.T) {
		saved, out := salvage(t, logAlone(t, first))
		if !saved.Whole() || saved.Log == nil || saved.Log.Frames == 0 {
			t.Fatalf("%+v", saved)
		}
		checkHeads(t, out, heads)
		again := openAt(t, out)
		defer again.Close()
		inst, err := again.Load(t.Context(), storetest.ID(3))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Commit(t.Context(), storetest.Advance(t, inst, "reviewing", `{"n":1}`)); err != nil {
			t.Fatal(err)
		}
		if err := record.Verify(again.Events(t.Context(), store.EventQuery{Instance: inst.ID})); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("damaged in the middle", func(t *testing.T) {
		path := logAlone(t, first)
		content, err := os.ReadFile(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		written := len(bytes.TrimRight(content, "\x00")) // preallocated space follows
		content[written*3/4] ^= 1
		if err := os.WriteFile(path+"-wal", content, 0o600); err != nil {
			t.Fatal(err)
		}
		saved, out := salvage(t, path)
		if saved.Whole() || !saved.Log.Cut {
			t.Fatalf("called whole: %+v", saved.Log)
		}
		if c, err := sqlite.Inspect(t.Context(), out); err != nil || c.Instances == 0 || c.Instances >= int64(len(heads)) {
			t.Fatalf("%+v, %v", c, err)
		}
	})
	t.Run("after a checkpoint", func(t *testing.T) {
		if _, err := s.WriterConn().ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(50), `{}`)); err != nil {
			t.Fatal(err)
		}
		// The list of tables was only in the database, and so were most pages.
		saved, out := salvage(t, logAlone(t, first))
		if saved.Whole() || saved.Log.MissingPages == 0 {
			t.Fatalf("called whole: %+v, %+v", saved, saved.Log)
		}
		if c, err := sqlite.Inspect(t.Context(), out); err != nil || c.Instances != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
	})
}

// Deleting a log under load loses nothing, even if the process then ends immediately.
func TestDeletedLogUnderLoadLosesNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open files cannot be deleted there")
	}
	for round := range max(1, *crashRounds/5) {
		path, acks := newPath(t), map[string][]acked{}
		p := spawn(t, "load", path, "")
		count := 0
		err := p.read(func(a acked) { // until it finds the log gone and panics
			acks[a.id] = append(acks[a.id], a)
			if count++; count == 50+100*round {
				if err := os.Remove(path + "-wal"); err != nil {
					t.Error(err)
				}
			}
		})
		if err == nil || !strings.Contains(p.stderr.String(), sqlite.ErrGone.Error()) {
			t.Fatalf("the process went on without a log: %v\n%s", err, p.stderr)
		}
		checkAcks(t, path, acks)
	}
}

// The log of a killed process yields what it contains, and counts as whole only if no acknowledged write is missing.
// A log without the list of tables, which had been checkpointed before, is rejected with a specific error.
func TestLogAloneAfterAKill(t *testing.T) {
	storetest.UseDisk(t) // otherwise the process has checkpointed its log before it is killed
	whole, refused := 0, 0
	for round := 0; round < max(2, *crashRounds/2) || whole == 0 && round < 20; round++ { // a late kill finds a checkpointed log
		path, acks := newPath(t), map[string][]acked{}
		p := spawn(t, "load", path, "")
		count, after := 0, 5+200*(round%2)
		_ = p.read(func(a acked) { // it is killed
			acks[a.id] = append(acks[a.id], a)
			if count++; count == after {
				if err := p.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
		})
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out.db")
		r, err := sqlite.Salvage(t.Context(), path, out)
		if errors.Is(err, sqlite.ErrCorrupt) && strings.Contains(err.Error(), "the log contains ") {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Whole() {
			whole++
			checkAcks(t, out, acks)
		}
		s := openAt(t, out)
		for inst, err := range s.Instances(t.Context(), store.InstanceQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if events := s.Events(t.Context(), store.EventQuery{Instance: inst.ID}); r.Whole() {
				if err := record.Verify(events); err != nil {
					t.Error(err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d logs held everything, %d held no list of tables", whole, refused)
	if whole == 0 {
		t.Error("no log of a process that was killed early held everything")
	}
}
