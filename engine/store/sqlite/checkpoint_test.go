package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// folding opens a store that checkpoints its log after this many pages. It also returns a function that writes about
// 10 pages.
func folding(t *testing.T, path string, pages int) (*sqlite.Store, func()) {
	t.Helper()
	s, err := sqlite.OpenCheckpointing(t.Context(), sqlite.Config{Path: path}, pages, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, big := 0, `{"a":"`+strings.Repeat("x", 30<<10)+`"}`
	return s, func() {
		t.Helper()
		n++
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(n), big)); err != nil {
			t.Fatal(err)
		}
	}
}

// until repeats a write until a condition holds.
func until(t *testing.T, what string, write func(), holds func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); write() {
		if time.Now().After(end) {
			t.Fatalf("not to be seen: %s", what)
		}
	}
}

func logPages(t *testing.T, s *sqlite.Store) (pages int) {
	t.Helper()
	pages, _, err := s.Log()
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// The log restarts repeatedly while writers write without a pause and only the checkpointer checkpoints it. Close
// ends the checkpointer.
func TestLogIsCheckpointedWhileWriting(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, write := folding(t, newPath(t), 500)
	var others sync.WaitGroup
	stop := make(chan struct{})
	for w := range 8 {
		others.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Commit(context.Background(), storetest.Start(t, storetest.ID(1<<24+w<<20+i), document(kilobyte))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for turn := range 5 {
		until(t, fmt.Sprint("a long log ", turn), write, func() bool { return logPages(t, s) >= 500 })
		until(t, fmt.Sprint("a short log ", turn), write, func() bool { return logPages(t, s) < 500 })
	}
	close(stop)
	others.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, before)
}

// A long-running reader lets the log grow; when it has ended, the log file is truncated.
func TestLogIsTruncatedAfterLongReader(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, write := folding(t, path, 50)
	defer s.Close()
	write()
	reader, err := s.ReaderDB().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var seen, again int
	count := func(into *int) {
		if err := reader.QueryRow("SELECT count(*) FROM instances").Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	count(&seen)
	until(t, "a huge log", write, func() bool { return logPages(t, s) > 1000 })
	count(&again)
	if seen != again {
		t.Errorf("the reader saw %d instances and then %d", seen, again)
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	until(t, "a file that is cut", write, func() bool { return logBytes(t, path) < 1<<20 })
}

func logBytes(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// The file of a growing log is longer than the log, which makes syncs cheaper. The zeros after the end of the log are
// not taken for damage when the log is all that is left of a store.
func TestLogIsGrownAhead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the log's file cannot be opened beside SQLite")
	}
	t.Parallel()
	path := newPath(t)
	s, write := folding(t, path, 4000)
	defer s.Close()
	room := func() bool {
		pages := int64(logPages(t, s))
		return pages > 64 && logBytes(t, path) >= 32+(pages+64)*(24+pageBytes)
	}
	until(t, "a log that has used some room up", write, func() bool { return logPages(t, s) > 1000 })
	until(t, "room", write, room)
	if size := logBytes(t, path); size > 3000*(24+pageBytes) { // a restarted log has free space in any case
		t.Errorf("there was no room before the log had %d bytes", size)
	}
	alone := filepath.Join(t.TempDir(), "gavel.db")
	log, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(alone+"-wal", log, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := sqlite.ReplayLog(alone+"-wal", alone)
	if err != nil || r.Cut || r.Frames != logPages(t, s) {
		t.Errorf("replayed %+v of %d pages, %v", r, logPages(t, s), err)
	}
}

// A huge log is truncated even if a write is in progress whenever the checkpointer runs: the writer does it.
func TestWriterTruncatesAHugeLog(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, write := folding(t, path, 50)
	defer s.Close()
	reader, err := s.ReaderDB().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := reader.QueryRow("SELECT count(*) FROM instances").Scan(&n); err != nil {
		t.Fatal(err)
	}
	until(t, "a huge log", write, func() bool { return logPages(t, s) > 500 })
	release := lock(t, path)
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	left := 0
	for range 10 { // the upkeep of the last write may take the flag immediately, or hold the lock
		if _, cut, err := s.Fold(); err != nil {
			t.Fatal(err)
		} else if cut {
			left++
		}
	}
	if left == 0 {
		t.Error("the file of a huge log is not left to the writer to cut")
	}
	release()
	until(t, "a file that is cut", func() { s.LeaveCut(); write() }, func() bool { return logBytes(t, path) < 1<<20 })
}

// A huge log is also truncated if the writer checkpointed its rest. Otherwise the log would restart and its file keep
// its length.
func TestHugeLogIsTruncated(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, write := folding(t, path, 50)
	defer s.Close()
	s.NeverFold()
	until(t, "a huge log", write, func() bool { return logPages(t, s) > 1000 })
	s.LeaveRest()
	write()
	for end := time.Now().Add(time.Minute); logBytes(t, path) > 1<<20; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the file of a huge log stays as it is once all of it is folded")
		}
	}
}

// Acknowledged writes are immediately visible to the writer, even during a checkpoint.
func TestWritesAreVisibleDuringCheckpoint(t *testing.T) {
	t.Parallel()
	s, write := folding(t, newPath(t), 20)
	defer s.Close()
	c := storetest.Start(t, storetest.ID(0), `{}`)
	if err := s.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var inst record.Instance
	for i := range 100 {
		write()
		var err error
		if inst, err = s.Load(t.Context(), c.Next.ID); err != nil || inst.Head != c.Next.Head {
			t.Fatalf("write %d is not to be seen: %v", i, err)
		}
		c = storetest.Advance(t, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, i))
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// The writer checkpoints frames that were appended while the checkpointer copied. Otherwise a log under load would
// never restart.
func TestWriterCheckpointsRest(t *testing.T) {
	t.Parallel()
	s, write := folding(t, newPath(t), 1<<30)
	defer s.Close()
	write()
	if rest, _, err := s.Fold(); err != nil || !rest {
		t.Errorf("after a round: the writer is to fold the rest: %t, %v", rest, err)
	}
	for range 20 {
		write()
	}
	if pages := logPages(t, s); pages < 100 {
		t.Fatalf("the log has %d pages", pages)
	}
	folded := func() bool { // the writer checkpoints after it has acknowledged the write
		for range 100 {
			if pages, folded, err := s.Log(); err == nil && pages == folded {
				return true
			}
			<-time.After(time.Millisecond)
		}
		return false
	}
	until(t, "a log that is folded", func() { s.LeaveRest(); write() }, folded)
	write()
	if pages := logPages(t, s); pages >= 100 {
		t.Errorf("the log goes on with %d pages", pages)
	}
}
