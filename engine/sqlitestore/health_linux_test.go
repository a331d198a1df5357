package sqlitestore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/sqlitestore"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// The process that holds the lock is named.
func TestLockHolderIsNamed(t *testing.T) {
	path := newPath(t)
	s, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Path: path, BusyTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := spawn(t, "hold the lock", path, "")
	defer p.Wait()
	defer p.gate.Close()
	if _, err := fmt.Fscanln(p.acks, new(string)); err != nil {
		t.Fatalf("%v\n%s", err, p.stderr)
	}
	err = s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`))
	if want := fmt.Sprintf("held by process %d (", p.Process.Pid); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.CheckWritable(ctx); err == nil {
		t.Error("a store that is locked is called writable")
	}
}

// A process that may open no more files says so, and not that its rights are wrong.
func TestTooManyFilesIsNamed(t *testing.T) {
	path := newPath(t)
	if err := openAt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	got := lines(t, spawn(t, "run out of files", path, ""))
	for _, what := range []string{"open", "read"} {
		if !strings.Contains(got[what], sqlitestore.ErrTooManyFiles.Error()) {
			t.Errorf("%s: %q", what, got[what])
		}
	}
}

func runOutOfFiles(cfg sqlitestore.Config, out io.Writer) {
	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, cfg)
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
	_, err = sqlitestore.OpenToRead(ctx, cfg.Path)
	say(out, "open", err)
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
