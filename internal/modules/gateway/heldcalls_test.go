package gateway

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A call is abandoned once its process no longer holds it, unless the call ended. An id that is invalid as a file name
// never is.
func TestHeldCalls(t *testing.T) {
	t.Parallel()
	h := heldCalls(filepath.Join(t.TempDir(), "calls"))
	release := h.hold("call-1")
	if h.isAbandoned("call-1") || h.isAbandoned("call-2") {
		t.Error("a call that is held, or that nobody holds here, counts as abandoned")
	}
	release()
	if h.isAbandoned("call-1") {
		t.Error("a call that was released counts as abandoned")
	}
	left := filepath.Join(string(h), "call-3") // as a killed process leaves it: the file without the lock
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !h.isAbandoned("call-3") || h.isAbandoned("call-3/../call-3") || heldCalls("").isAbandoned("call-3") {
		t.Error("only a call whose process has ended is abandoned")
	}
	defer h.hold("call-4")()
	h.sweep(time.Now())
	if !h.isAbandoned("call-3") {
		t.Error("the file of a call that may be open was removed")
	}
	h.sweep(time.Now().Add(2 * heldCallMaxAge))
	entries, err := os.ReadDir(string(h))
	if err != nil || len(entries) != 1 || entries[0].Name() != "call-4" {
		t.Errorf("after a sweep there are %v, %v", entries, err)
	}
}
