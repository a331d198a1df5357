package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/filelock"
)

// heldCallMaxAge is how long the file of a killed process is kept. No call stays open that long.
const heldCallMaxAge = 24 * time.Hour

// heldCalls is the path of evidence.CallsFolder. If it is "", no calls are held.
type heldCalls string

// findHeldCalls returns the held calls of the processes on this machine that use the store in folder.
func findHeldCalls(folder string) heldCalls {
	if folder == "" {
		return ""
	}
	return heldCalls(filepath.Join(folder, evidence.CallsFolder))
}

// hold marks a call as made by this process, until release is called. If it cannot, other processes wait for the
// call's deadline.
func (h heldCalls) hold(call string) (release func()) {
	path := h.path(call)
	if path == "" || os.MkdirAll(string(h), 0o700) != nil {
		return func() {}
	}
	lock, err := filelock.Acquire(path)
	if err != nil {
		return func() {}
	}
	return lock.Remove
}

// isAbandoned reports whether the process that made a call ended before the call did.
func (h heldCalls) isAbandoned(call string) bool {
	path := h.path(call)
	if path == "" {
		return false
	}
	if _, err := os.Stat(path); err != nil {
		return false
	}
	held, err := filelock.IsHeld(path)
	if held || err != nil {
		return false
	}
	_, err = os.Stat(path) // if it is gone, the call ended after the first Stat
	return err == nil
}

// path returns the path of a call's file, or "" for an invalid id, because ids come from the store.
func (h heldCalls) path(call string) string {
	if h == "" || !strings.HasPrefix(call, "call-") || strings.ContainsAny(call, `/\:`) {
		return ""
	}
	return filepath.Join(string(h), call)
}

// sweep removes files older than heldCallMaxAge that killed processes left.
func (h heldCalls) sweep(now time.Time) {
	if h == "" {
		return
	}
	entries, _ := os.ReadDir(string(h))
	for _, e := range entries {
		path := filepath.Join(string(h), e.Name())
		if info, err := e.Info(); err != nil || now.Sub(info.ModTime()) < heldCallMaxAge {
			continue
		}
		if held, err := filelock.IsHeld(path); err == nil && !held {
			_ = os.Remove(path)
		}
	}
}
