//nolint:thelper // what takes a T here is part of the test, not a helper

package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

func TestOpenCreatesPrivateFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes there")
	}
	path := filepath.Join(t.TempDir(), "a", "b", "gavel.db")
	s := openAt(t, path)
	defer s.Close()
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]os.FileMode{
		filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700,
		path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600,
	} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", file, info.Mode().Perm(), want)
		}
	}
}

func TestOpenWarnsOfAPublicFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes there")
	}
	path := newPath(t)
	if err := openAt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !strings.Contains(log.String(), "others can read the store") {
		t.Errorf("the log says %q", log.String())
	}
}

// A store written by an earlier version has a pointer-map page. It is left as it is.
func TestStoreWithPointersOfPagesIsOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gavel.db")
	db := raw(t, path)
	if _, err := db.Exec("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		s := openAt(t, path)
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(n), document(20*kilobyte))); err != nil {
			t.Fatal(err)
		}
		var vacuum int
		if err := s.ReaderDB().QueryRow("PRAGMA auto_vacuum").Scan(&vacuum); err != nil || vacuum != 2 {
			t.Errorf("auto_vacuum %d, %v", vacuum, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSettingsInForce(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	for query, want := range map[string]int64{
		"PRAGMA synchronous": 2, "PRAGMA foreign_keys": 1, "PRAGMA wal_autocheckpoint": 0, "PRAGMA busy_timeout": 0,
		"PRAGMA auto_vacuum": 0, "PRAGMA application_id": 0x6761766c, "PRAGMA user_version": 1,
	} {
		var got int64
		if err := s.WriterConn().QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", query, got, err, want)
		}
	}
	var mode string
	db := raw(t, path)
	defer db.Close()
	if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("journal mode %q, %v", mode, err)
	}
	if _, err := s.ReaderDB().Exec("DELETE FROM events"); err == nil {
		t.Error("a reader can write")
	}
}

// TestQueryPlans checks that no query scans a whole table, whatever its filters.
func TestQueryPlans(t *testing.T) {
	s := openAt(t, newPath(t))
	defer s.Close()
	for _, q := range s.Queries() {
		for _, step := range plan(t, s, q) {
			scan := strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "USING INDEX") && !strings.Contains(step, "COVERING INDEX sqlite_autoindex_instances_1") && !strings.HasPrefix(step, "SCAN (subquery") && step != "SCAN p" // the page
			if scan || strings.Contains(step, "TEMP B-TREE") {
				t.Errorf("%s\n%s", q.SQL, step)
			}
		}
	}
}

func plan(t *testing.T, s *sqlite.Store, q sqlite.Query) (steps []string) {
	rows, err := s.ReaderDB().Query("EXPLAIN QUERY PLAN "+q.SQL, q.Args...)
	if err != nil {
		t.Fatalf("%s: %v", q.SQL, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, detail)
	}
	if err := rows.Err(); err != nil || len(steps) == 0 {
		t.Fatalf("%s: %d steps, %v", q.SQL, len(steps), err)
	}
	return steps
}

func TestOpenRefuses(t *testing.T) {
	db := func(t *testing.T, change string) string {
		path := newPath(t)
		if err := openAt(t, path).Close(); err != nil {
			t.Fatal(err)
		}
		db := raw(t, path)
		run(t, db, change)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := func(t *testing.T, content string) string {
		path := filepath.Join(t.TempDir(), "gavel.db")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := map[string]struct {
		path func(t *testing.T) string
		want error
	}{
		"another schema": {func(t *testing.T) string { return db(t, "PRAGMA user_version = 99") }, store.ErrOtherSchema},
		"a text file":    {func(t *testing.T) string { return file(t, strings.Repeat("not a database\n", 100)) }, sqlite.ErrNotAStore},
		"a short file":   {func(t *testing.T) string { return file(t, "x") }, sqlite.ErrNotAStore},
		"another application's": {func(t *testing.T) string {
			return db(t, "PRAGMA application_id = 7")
		}, sqlite.ErrNotAStore},
		"a database without an id": {func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "other.db")
			db := raw(t, path)
			defer db.Close()
			run(t, db, "CREATE TABLE theirs (a)")
			return path
		}, sqlite.ErrNotAStore},
		"a directory":                        {func(t *testing.T) string { return t.TempDir() }, sqlite.ErrNotAStore},
		"a file in the way of the directory": {func(t *testing.T) string { return filepath.Join(file(t, ""), "gavel.db") }, nil},
		"no path":                            {func(*testing.T) string { return "" }, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := tt.path(t)
			before, _ := os.ReadFile(path)
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
			if err == nil {
				s.Close()
			}
			if err == nil || (tt.want != nil && !errors.Is(err, tt.want)) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name the file: %v", err)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestOpenRefusesNetworkFileSystems(t *testing.T) {
	path := newPath(t)
	_, err := sqlite.OpenOn(t.Context(), sqlite.Config{Path: path}, "nfs")
	if !errors.Is(err, sqlite.ErrNetworkFS) || !strings.Contains(err.Error(), "nfs") {
		t.Errorf("got %v, want ErrNetworkFS", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was created: %v", err)
	}
}

func TestOpenAtOnceCreatesOneStore(t *testing.T) {
	path := newPath(t)
	stores := make(chan *sqlite.Store, 8)
	for range cap(stores) {
		go func() {
			s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
			if err != nil {
				t.Errorf("open: %v", err)
			}
			stores <- s
		}()
	}
	var all []*sqlite.Store
	for range cap(stores) {
		if s := <-stores; s != nil {
			all = append(all, s)
		}
	}
	for i, s := range all {
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(i), `{}`)); err != nil {
			t.Errorf("commit: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func TestLockedByAnotherProcess(t *testing.T) {
	path := newPath(t)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := storetest.Start(t, storetest.ID(1), `{}`)
	release := lock(t, path)
	err = s.Commit(t.Context(), c)
	if !errors.Is(err, sqlite.ErrBusy) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if _, err := s.Load(t.Context(), c.Next.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a read beside the lock: %v", err)
	}
	release()
	// On a busy machine, 50 ms can pass before a released lock is noticed.
	for end := time.Now().Add(2 * time.Minute); ; {
		err := s.Commit(t.Context(), c)
		if err == nil {
			break
		}
		if !errors.Is(err, sqlite.ErrBusy) || time.Now().After(end) {
			t.Fatalf("after the lock: %v", err)
		}
	}
}

func TestCloseDoesNotWaitForAnotherProcess(t *testing.T) {
	path := newPath(t)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	release := lock(t, path)
	defer release()
	errs := make(chan error, 2)
	for i := range cap(errs) {
		c := storetest.Start(t, storetest.ID(i), `{}`)
		go func() { errs <- s.Commit(t.Context(), c) }()
	}
	for s.Queued() == 0 { // until at least one is queued
		runtime.Gosched()
	}
	start := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	busy := 0
	for range cap(errs) {
		switch err := <-errs; {
		case errors.Is(err, sqlite.ErrBusy):
			busy++
		case !errors.Is(err, store.ErrClosed): // it came too late
			t.Errorf("a waiting write: got %v, want ErrBusy", err)
		}
	}
	if busy == 0 {
		t.Error("no write was told that the store is locked")
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("closing took %s", took)
	}
}

func TestCloseWaitsForCallsInProgress(t *testing.T) {
	s := openAt(t, newPath(t))
	write, leave, err := s.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for _, err := s.Load(t.Context(), "wf-none"); !errors.Is(err, store.ErrClosed); _, err = s.Load(t.Context(), "wf-none") {
		runtime.Gosched() // until the store is closed to new calls
	}
	for i := range 20 {
		if err := write(storetest.Start(t, storetest.ID(i), `{}`)); err != nil {
			t.Fatalf("a call that was in before: %v", err)
		}
	}
	select {
	case <-closed:
		t.Fatal("closed with a call in progress")
	default:
	}
	leave()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestDiskFull(t *testing.T) {
	s := openAt(t, newPath(t))
	defer s.Close()
	if _, err := s.WriterConn().ExecContext(t.Context(), "PRAGMA max_page_count = 90"); err != nil {
		t.Fatal(err)
	}
	big := `{"a":"` + strings.Repeat("x", 50<<10) + `"}`
	var inst record.Instance
	var full error
	for i := 0; full == nil && i < 20; i++ {
		c := storetest.Start(t, storetest.ID(i), big)
		if full = s.Commit(t.Context(), c); full == nil {
			inst = c.Next
		}
	}
	if !errors.Is(full, sqlite.ErrDiskFull) {
		t.Fatalf("got %v, want ErrDiskFull", full)
	}
	if got, err := s.Load(t.Context(), inst.ID); err != nil || got.Head != inst.Head {
		t.Errorf("what was acknowledged: %v", err)
	}
	if _, err := s.WriterConn().ExecContext(t.Context(), "PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), storetest.Advance(t, inst, "reviewing", `{"n":1}`)); err != nil {
		t.Errorf("after space was made: %v", err)
	}
	if err := record.Verify(s.Events(t.Context(), store.EventQuery{Instance: inst.ID})); err != nil {
		t.Error(err)
	}
}

func TestReadOnly(t *testing.T) {
	t.Run("a connection that may not write", func(t *testing.T) { // also for the superuser, to whom modes do not apply
		s := openAt(t, newPath(t))
		defer s.Close()
		if _, err := s.WriterConn().ExecContext(t.Context(), "PRAGMA query_only = ON"); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)); !errors.Is(err, sqlite.ErrReadOnly) {
			t.Errorf("got %v, want ErrReadOnly", err)
		}
	})
	t.Run("a file and a directory without the right", func(t *testing.T) {
		if os.Geteuid() <= 0 {
			t.Skip("modes do not stop this user")
		}
		path := filepath.Join(t.TempDir(), "d", "gavel.db")
		if err := openAt(t, path).Close(); err != nil {
			t.Fatal(err)
		}
		for target, mode := range map[string]os.FileMode{path: 0o400, filepath.Dir(path): 0o500} {
			info, err := os.Stat(target)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(target, mode); err != nil {
				t.Fatal(err)
			}
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
			if err == nil {
				err = errors.Join(s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)), s.Close())
			}
			if !errors.Is(err, sqlite.ErrReadOnly) {
				t.Errorf("%s with mode %o: got %v, want ErrReadOnly", target, mode, err)
			}
			if err := os.Chmod(target, info.Mode()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestCorruptPage(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path)
	inst := record.Instance{}
	for i := range 50 {
		c := storetest.Start(t, storetest.ID(i), `{"a":"`+strings.Repeat("x", 3000)+`"}`)
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		inst = c.Next
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for page := 2; page < len(content)/4096; page++ { // the first one holds the schema
		copy(content[page*4096:], bytes.Repeat([]byte{0xff}, 64))
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err == nil {
		defer s.Close()
		_, err = s.Load(t.Context(), inst.ID)
	}
	if !errors.Is(err, sqlite.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}
