//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGHUP is the operator's way out of a quarantine; it does not end the server.
func TestHangupForgivesQuarantinedScripts(t *testing.T) {
	t.Parallel()
	s := launch(t, "--store", "memory")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); !strings.Contains(s.stderr.String(), "quarantined scripts may run again"); {
		s.must("workflow.list", object{}) // alive, and an event to wait for
		if time.Since(began) > patience {
			t.Fatalf("nothing was said of it: %s", s.stderr)
		}
	}
	s.must("workflow.list", object{})
}
