package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/filelock"
)

// heldKept is how long the file of a process that was killed is kept: longer than any call is open.
const heldKept = 24 * time.Hour

// heldCalls is the path of evidence.CallsFolder; "" holds nothing.
type heldCalls string

// findHeldCalls are the gated calls that processes over a store make on this machine.
func findHeldCalls(folder string) heldCalls {
	if folder == "" {
		return ""
	}
	return heldCalls(filepath.Join(folder, evidence.CallsFolder))
}

// hold shows that this process makes a call, until release. A call that cannot be held is overdue at its deadline.
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

// isAbandoned reports whether a process that made a call has ended before the call did.
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
	_, err = os.Stat(path) // else its process removed it a moment ago
	return err == nil
}

// path is that of a call's file, "" for one that has none. Ids come from the store.
func (h heldCalls) path(call string) string {
	if h == "" || !strings.HasPrefix(call, "call-") || strings.ContainsAny(call, `/\:`) {
		return ""
	}
	return filepath.Join(string(h), call)
}

// sweep removes what processes that were killed left long ago.
func (h heldCalls) sweep(now time.Time) {
	if h == "" {
		return
	}
	entries, _ := os.ReadDir(string(h))
	for _, e := range entries {
		path := filepath.Join(string(h), e.Name())
		if info, err := e.Info(); err != nil || now.Sub(info.ModTime()) < heldKept {
			continue
		}
		if held, err := filelock.IsHeld(path); err == nil && !held {
			_ = os.Remove(path)
		}
	}
}
