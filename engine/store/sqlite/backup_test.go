package sqlite_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// filled creates a store with n instances of three events each; one history is truncated.
func filled(t testing.TB, path string, n int) {
	t.Helper()
	s := openAt(t, path)
	commit := func(c store.Commit) record.Instance {
		t.Helper()
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c.Next
	}
	for i := range n {
		inst := commit(storetest.Start(t, storetest.ID(i), fmt.Sprintf(`{"title":"number %d"}`, i)))
		floor := commit(storetest.Refuse(t, inst, "submit"))
		inst = commit(storetest.Advance(t, floor, "reviewing", `{"n":1}`))
		if i == 0 {
			c := storetest.Truncate(t, inst, floor)
			if err := s.Commit(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// names lists the files in the directory of a path.
func names(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func change(t testing.TB, path, query string) {
	t.Helper()
	db := raw(t, path)
	defer db.Close()
	run(t, db, query)
}

func TestBackupIsOneGoodFile(t *testing.T) {
	path := newPath(t)
	filled(t, path, 20)
	s := openAt(t, path)
	defer s.Close()
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(99), `{}`)); err != nil { // only in the log
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "a copy?#.db")
	if _, err := sqlite.Copy(t.Context(), s.Path(), target, false); err != nil {
		t.Fatal(err)
	}
	if got := names(t, target); len(got) != 1 {
		t.Errorf("beside the backup: %q", got)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	c, err := sqlite.Inspect(t.Context(), target)
	if err != nil || c.Instances != 21 || c.Events != 20*3+1-1 || c.Newest.IsZero() || c.Bytes == 0 {
		t.Errorf("contents: %+v, %v", c, err)
	}
	if _, err := sqlite.Copy(t.Context(), s.Path(), target, false); !errors.Is(err, sqlite.ErrExists) {
		t.Errorf("the second time: %v", err)
	}
	if _, err := sqlite.Copy(t.Context(), path, path, true); !errors.Is(err, sqlite.ErrExists) {
		t.Errorf("onto itself: %v", err)
	}
	if _, err := sqlite.Copy(t.Context(), path, target, true); err != nil {
		t.Errorf("in its place: %v", err)
	}
	copied := openAt(t, target)
	defer copied.Close()
	for _, id := range []string{storetest.ID(0), storetest.ID(7), storetest.ID(99)} {
		want, err := s.Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := copied.Load(t.Context(), id); err != nil || got.Head != want.Head || string(got.Context) != string(want.Context) {
			t.Errorf("%s: got %+v, %v", id, got, err)
		}
	}
	var vacuum int
	if err := copied.ReaderDB().QueryRow("PRAGMA auto_vacuum").Scan(&vacuum); err != nil || vacuum != 0 {
		t.Errorf("auto_vacuum %d, %v", vacuum, err)
	}
}

// A backup contains everything that another process had acknowledged when it began, and it verifies even if writes
// continue during the backup.
func TestBackupWhileAnotherProcessWrites(t *testing.T) {
	path := newPath(t)
	p := spawn(t, "load", path, "")
	var mu sync.Mutex
	last := map[string]int64{}
	started := make(chan struct{})
	begun := sync.OnceFunc(func() { close(started) })
	ended := make(chan error, 1)
	go func() {
		ended <- p.read(func(a acked) {
			mu.Lock()
			defer mu.Unlock()
			last[a.id] = max(last[a.id], a.seq)
			if a.seq > 5 {
				begun()
			}
		})
	}()
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("the other process has ended: %v\n%s", err, p.stderr)
	}
	for i := range 3 {
		mu.Lock()
		before := map[string]int64{}
		for id, seq := range last {
			before[id] = seq
		}
		mu.Unlock()
		target := filepath.Join(t.TempDir(), fmt.Sprint(i, ".db"))
		if _, err := sqlite.Copy(t.Context(), path, target, false); err != nil {
			t.Fatal(err)
		}
		copied := openAt(t, target)
		for id, seq := range before {
			inst, err := copied.Load(t.Context(), id)
			if err != nil || inst.Seq < seq {
				t.Errorf("%s: acknowledged up to event %d, the backup has %d: %v", id, seq, inst.Seq, err)
			}
		}
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
}

func TestBadCopyIsNotPublished(t *testing.T) {
	tests := map[string]struct {
		harm string
		want error
	}{
		"an edited event":      {`UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'local:agent', 'local:other') AS BLOB) WHERE pos = 8`, record.ErrBroken},
		"a deleted event":      {`DELETE FROM events WHERE pos = 8`, record.ErrBroken},
		"a cut history":        {`DELETE FROM events WHERE n = 3 AND seq = 3`, record.ErrBroken},
		"a missing instance":   {`DELETE FROM instances WHERE n = 3`, sqlite.ErrCorrupt},
		"no floor":             {`DELETE FROM snapshots`, record.ErrBroken},
		"an event that is not": {`UPDATE events SET body = x'7b7d' WHERE pos = 8`, record.ErrBroken},
		"another schema":       {`PRAGMA user_version = 1000`, store.ErrOtherSchema},
		"another application":  {`PRAGMA application_id = 7`, sqlite.ErrNotAStore},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			filled(t, path, 4)
			change(t, path, tt.harm)
			target := filepath.Join(t.TempDir(), "copy.db")
			if _, err := sqlite.Copy(t.Context(), path, target, false); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if got := names(t, target); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
		})
	}
	if _, err := sqlite.Copy(t.Context(), filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "x"), false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no store at all: %v", err)
	}
}

func TestRestore(t *testing.T) {
	backup := filepath.Join(t.TempDir(), "backup.db")
	filled(t, backup, 5)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	target := newPath(t)
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		t.Fatal(err)
	}
	req := sqlite.RestoreRequest{From: backup, To: target, Now: now}
	r, err := sqlite.Restore(t.Context(), req)
	if err != nil || r.Instances != 5 || r.Events != 14 || r.Kept != nil {
		t.Fatalf("to where nothing is: %+v, %v", r, err)
	}
	if _, err := sqlite.Restore(t.Context(), req); !errors.Is(err, sqlite.ErrExists) {
		t.Errorf("to where something is: %v", err)
	}
	s := openAt(t, target)
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(99), `{}`)); err != nil {
		t.Fatal(err)
	}
	req.Replace = true
	if _, err := sqlite.Restore(t.Context(), req); !errors.Is(err, sqlite.ErrInUse) {
		t.Errorf("while it is open: %v", err)
	}
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(98), `{}`)); err != nil {
		t.Errorf("who has it open is disturbed: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, suffix := range []string{"", "-2"} {
		r, err := sqlite.Restore(t.Context(), req)
		kept := target + ".before-restore-20260102T030405Z" + suffix
		if err != nil || !slices.Equal(r.Kept, []string{kept}) {
			t.Fatalf("in its place: %+v, %v", r, err)
		}
		if c, err := sqlite.Inspect(t.Context(), kept); err != nil || c.Instances != int64(7-2*i) {
			t.Errorf("what was there: %+v, %v", c, err)
		}
		if c, err := sqlite.Inspect(t.Context(), target); err != nil || c.Instances != 5 {
			t.Errorf("what is there: %+v, %v", c, err)
		}
	}
	if got := names(t, target); len(got) != 3 {
		t.Errorf("files: %q", got)
	}
}

// TestRestoreYieldsToOtherProcess uses a second process because this process would not see its own locks.
func TestRestoreYieldsToOtherProcess(t *testing.T) {
	backup, target := filepath.Join(t.TempDir(), "backup.db"), newPath(t)
	filled(t, backup, 2)
	filled(t, target, 3)
	p := spawn(t, "contend", target, "local:one")
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- p.read(func(a acked) {
			if a.id == "ready" {
				close(ready)
			}
		})
	}()
	<-ready
	req := sqlite.RestoreRequest{From: backup, To: target, Replace: true, Now: time.Now()}
	if _, err := sqlite.Restore(t.Context(), req); !errors.Is(err, sqlite.ErrInUse) {
		t.Errorf("while another process has it open: %v", err)
	}
	// The store is damaged but still open in the other process.
	header := make([]byte, 100)
	f, err := os.OpenFile(target, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(header, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 100), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Restore(t.Context(), req); !errors.Is(err, sqlite.ErrInUse) {
		t.Errorf("damaged, and another process has it open: %v", err)
	}
	if _, err := f.WriteAt(header, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	if r, err := sqlite.Restore(t.Context(), req); err != nil || r.Instances != 2 {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

// A write-ahead log that outlived its file must not be replayed into the next one.
func TestRestoreKeepsOldFiles(t *testing.T) {
	backup, target := filepath.Join(t.TempDir(), "backup.db"), newPath(t)
	filled(t, backup, 2)
	filled(t, target, 3)
	for _, garbage := range []string{"-wal", "-shm"} {
		if err := os.WriteFile(target+garbage, []byte(strings.Repeat("garbage ", 4096)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(target, []byte(strings.Repeat("no store ", 1024)), 0o600); err != nil {
		t.Fatal(err)
	}
	req := sqlite.RestoreRequest{From: backup, To: target, Replace: true, Now: time.Now()}
	r, err := sqlite.Restore(t.Context(), req)
	if err != nil || len(r.Kept) == 0 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if c, err := sqlite.Inspect(t.Context(), target); err != nil || c.Instances != 2 {
		t.Errorf("what is there: %+v, %v", c, err)
	}
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target+"-wal", []byte("left"), 0o600); err != nil {
		t.Fatal(err)
	}
	req.Replace = false
	if r, err := sqlite.Restore(t.Context(), req); err != nil || len(r.Kept) != 1 {
		t.Errorf("a log without a file: %+v, %v", r, err)
	}
}

func TestRestoreRefusesABadBackup(t *testing.T) {
	backup, target := filepath.Join(t.TempDir(), "backup.db"), newPath(t)
	filled(t, backup, 5)
	filled(t, target, 3)
	change(t, backup, `UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'local:agent', 'local:other') AS BLOB) WHERE pos = 8`)
	before := names(t, target)
	_, err := sqlite.Restore(t.Context(), sqlite.RestoreRequest{From: backup, To: target, Replace: true, Now: time.Now()})
	if !errors.Is(err, record.ErrBroken) {
		t.Errorf("got %v", err)
	}
	if after := names(t, target); !slices.Equal(before, after) {
		t.Errorf("files before %q, after %q", before, after)
	}
	if c, err := sqlite.Inspect(t.Context(), target); err != nil || c.Instances != 3 {
		t.Errorf("what was there: %+v, %v", c, err)
	}
}
