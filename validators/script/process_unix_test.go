//go:build unix

package script_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// TestWorkersAreIsolated: an interrupt from the terminal reaches only the gateway, which ends its workers after
// it has answered its callers.
func TestWorkersAreIsolated(t *testing.T) {
	p := newPool(t, script.Config{})
	one(t, p, yes, `{}`)
	for _, pid := range p.WorkerPIDs() {
		if group, err := syscall.Getpgid(pid); err != nil || group == syscall.Getpgrp() {
			t.Errorf("a worker is in our process group: %v", err)
		}
	}
}

// TestReadEndsWithStuckWorker: this process enforces the limit too, because a document may have taken
// over the worker.
func TestReadEndsWithStuckWorker(t *testing.T) {
	p := newPool(t, script.Config{Read: 100 * time.Millisecond})
	if _, err := p.Read(t.Context(), "agent", []byte("say hello")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		for _, pid := range p.WorkerPIDs() {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
		_, err := p.Read(ctx, "agent", []byte("say hello"))
		if errors.Is(err, script.ErrTooCostly) {
			return
		}
		if err != nil { // otherwise a newly started worker answered
			t.Fatal(err)
		}
	}
}
