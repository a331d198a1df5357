//go:build unix

package serve

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/validators/script"
)

// A sandbox that worked counts as working until a probe has failed: on a busy machine probes are slow, and that must
// not cause a restart.
func TestProbeThatTakesLong(t *testing.T) {
	t.Parallel()
	slow := filepath.Join(t.TempDir(), "slow-worker")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, worked := range []bool{true, false} {
		pool, err := script.NewPool(script.Config{WorkerPath: slow})
		if err != nil {
			t.Fatal(err)
		}
		probe := &sandboxProbe{pool: pool}
		probe.isWorking.Store(worked)
		probe.deaths.Store(1) // a worker has ended since
		asker, left := context.WithCancel(t.Context())
		left()
		if err := probe.check(asker); (err == nil) != worked {
			t.Errorf("worked %t: %v", worked, err)
		}
		if err := pool.Close(); err != nil { // ends the probe
			t.Error(err)
		}
		if err := probe.check(t.Context()); err == nil {
			t.Errorf("worked %t: a sandbox that is closed works", worked)
		}
	}
}
