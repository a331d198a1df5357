package sqlite_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// A single writer does not wait for another goroutine. After concurrent writes, the writer goroutine takes over again
// for a while.
func TestSingleWriterWritesDirectly(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	itself := func() bool {
		t.Helper()
		itself, err := s.WritesItself(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return itself
	}
	for i := range 8 {
		if itself() {
			t.Errorf("write %d was made by its caller already", i)
		}
	}
	for tries := 0; !itself(); tries++ { // the other goroutine may still be doing upkeep
		if tries > 1000 {
			t.Fatal("a writer that has been alone still waits for another goroutine")
		}
	}

	release := lock(t, path)
	errs := make(chan error, 2)
	for i := range cap(errs) {
		c := storetest.Start(t, storetest.ID(i), `{}`)
		go func() { errs <- s.Commit(t.Context(), c) }()
	}
	for s.Queued() == 0 { // one waits for the lock, and the other after it in the queue
		runtime.Gosched()
	}
	release()
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if itself() {
		t.Error("a writer that is not alone does not queue")
	}
}

// A panic in the middle of a write ends the process, even if a caller would recover from it. Otherwise the
// transaction would stay open and block all further writes.
func TestPanicOfDirectWriteEndsTheProcess(t *testing.T) {
	p := spawn(t, "panic", newPath(t), "")
	if err := p.Wait(); err == nil || !strings.Contains(p.stderr.String(), "in the middle of a write") {
		t.Errorf("%v: %s", err, p.stderr)
	}
}

// A direct write can still be cancelled while another process holds the lock.
func TestDirectWriteCanBeCancelled(t *testing.T) {
	path := newPath(t)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Alone()
	release := lock(t, path)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c := storetest.Start(t, storetest.ID(1), `{}`)
	go func() { done <- s.Commit(ctx, c) }()
	for !s.Writing() {
		runtime.Gosched()
	}
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a write that was called off still waits for the lock")
	}
}
