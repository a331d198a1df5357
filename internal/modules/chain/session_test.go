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

// TestQuietLog: DBOS logs only failures, and nothing once the session is shutting down.
func TestQuietLog(t *testing.T) {
	var out bytes.Buffer
	var shutting atomic.Bool
	log := slog.New(quietHandler{slog.NewTextHandler(&out, nil), &shutting}).With("from", "dbos")
	log.Warn("launched")
	log.Error("cancelled", "error", fmt.Errorf("poll: %w", context.Canceled))
	if out.Len() > 0 {
		t.Errorf("it says %s", &out)
	}
	full := errors.New("the disk is full")
	log.Error("full", "error", full)
	if !strings.Contains(out.String(), "the disk is full") {
		t.Errorf("while the session is open: %q", &out)
	}
	out.Reset()
	shutting.Store(true)
	log.Error("full", "error", full)
	if out.Len() > 0 {
		t.Errorf("once it ends: %s", &out)
	}
}

// TestQuietFailure: a failed run is not a problem of the server, so nothing is logged.
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

// TestTimeoutOfAWait: the error of a wait that timed out names the full timeout, even if the wait continued
// after a kill.
func TestTimeoutOfAWait(t *testing.T) {
	folder := t.TempDir()
	r := openRuns(t, folder, &fakeServers{})
	run := startRun(t, r, parse(t, steps(`{id: w, type: wait, signal: go, timeout: 400ms}`)), "")
	await(t, "the wait", func() ([]RunQuestion, bool) {
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
