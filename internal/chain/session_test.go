package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// DBOS is not heard while all is well, nor when it cannot do something because the session ends.
func TestQuietLog(t *testing.T) {
	var out bytes.Buffer
	var shutting atomic.Bool
	log := slog.New(quietHandler{slog.NewTextHandler(&out, nil), &shutting, func(context.Context, string) bool { return false }}).With("from", "dbos")
	closed := fmt.Errorf("failed to refresh: %w", errors.New("sql: database is closed"))
	log.Info("launched")
	log.Warn("cancelled", "error", fmt.Errorf("poll: %w", context.Canceled))
	if out.Len() > 0 {
		t.Errorf("it says %s", &out)
	}
	log.Warn("closed", "error", closed)
	if !strings.Contains(out.String(), "database is closed") {
		t.Errorf("while the session is open: %q", &out)
	}
	out.Reset()
	shutting.Store(true)
	log.Warn("closed", "error", closed)
	if out.Len() > 0 {
		t.Errorf("once it ends: %s", &out)
	}
	log.Error("full", "error", errors.New("the disk is full"))
	if !strings.Contains(out.String(), "the disk is full") {
		t.Errorf("another error once it ends: %q", &out)
	}
}

// TestQuietCancel: that an execution has no outcome is said, but not where somebody cancelled its run.
func TestQuietCancel(t *testing.T) {
	t.Parallel()
	var out SyncBuffer
	b := &blockedServers{release: make(chan struct{})}
	r, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "chains.db"), Effects: b, Grace: shortGrace, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	end := func() {
		t.Helper()
		b.release <- struct{}{}
		await(t, "the end of the execution", func() (int, bool) { n := r.countUnderWay(); return n, n == 0 })
	}
	d := parse(t, steps(`{id: x, type: tool, server: s, action: bound}`))
	cancelled := startRun(t, r, d, "")
	b.awaitUnder(t, 1)
	if err := r.Cancel(t.Context(), cancelled, "ann", ""); err != nil {
		t.Fatal(err)
	}
	end()
	lost := startRun(t, r, d, "")
	b.awaitUnder(t, 1)
	db := openSQLite(t, r.config.Path)
	if _, err := db.ExecContext(t.Context(), "UPDATE workflow_status SET status = 'ERROR' WHERE workflow_uuid = ?", lost); err != nil {
		t.Fatal(err)
	}
	end()
	said, _ := await(t, "the warning", func() (string, bool) { s := out.String(); return s, strings.Contains(s, lost) })
	if !strings.Contains(said, "no longer owned by this execution") || strings.Contains(said, cancelled) {
		t.Errorf("it says %s", said)
	}
}

// TestQuietFailure: a run that fails is no trouble of the server's, so its log is silent.
func TestQuietFailure(t *testing.T) {
	t.Parallel()
	var out SyncBuffer
	r, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "chains.db"), Effects: &fakeServers{}, Grace: shortGrace, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	run := startRun(t, r, parse(t, steps(`{id: w, type: wait, signal: go, timeout: 1ms}`)), "")
	if result := waitRun(t, r, run); result.Err == nil {
		t.Error("the run does not fail")
	}
	r.Close()
	if said := out.String(); said != "" {
		t.Errorf("it says %s", said)
	}
}

// A wait that is too long says how long it was to be, also where it went on after a kill.
func TestTimeoutOfAWait(t *testing.T) {
	folder := t.TempDir()
	r := openRuns(t, folder, &fakeServers{})
	run := startRun(t, r, parse(t, steps(`{id: w, type: wait, signal: go, timeout: 400ms}`)), "")
	await(t, "the wait", func() ([]Question, bool) {
		q, err := r.questions(t.Context(), run)
		return q[run], err == nil && len(q[run]) == 1
	})
	r.Close()
	r = openRuns(t, folder, &fakeServers{})
	defer r.Close()
	began := time.Now()
	if result := waitRun(t, r, run); result.Err == nil || result.Err.Message != "no answer within 400ms" || time.Since(began) > 20*time.Second {
		t.Errorf("it ends with %+v after %s", result.Err, time.Since(began))
	}
}
