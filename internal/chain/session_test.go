package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// DBOS is not heard while all is well, nor when it cannot do something because the session ends.
func TestQuietLog(t *testing.T) {
	var out bytes.Buffer
	var shutting atomic.Bool
	log := slog.New(quietHandler{slog.NewTextHandler(&out, nil), &shutting}).With("from", "dbos")
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
