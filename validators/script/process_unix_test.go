//go:build unix

package script_test

import (
	"syscall"
	"testing"

	"github.com/gavel-mcp/gavel/validators/script"
)

// TestWorkersStandApart: an interrupt from the terminal reaches the gateway, which
// ends its workers when it has answered its callers.
func TestWorkersStandApart(t *testing.T) {
	p := newPool(t, script.Config{})
	one(t, p, yes, `{}`)
	for _, pid := range p.WorkerPIDs() {
		if group, err := syscall.Getpgid(pid); err != nil || group == syscall.Getpgrp() {
			t.Errorf("a worker is in our process group: %v", err)
		}
	}
}
