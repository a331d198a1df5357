//go:build linux

package worker_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// TestAWorkerCanReachNothing hardens a process as a worker hardens itself and
// tries everything that a worker must not be able to do. It runs in whatever way
// the tests were built: with and without C code linked in.
func TestAWorkerCanReachNothing(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("no table of system calls for this processor")
	}
	leak, err := os.Open("/etc/passwd") // a descriptor that the parent forgot to protect
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{worker.ProbeName}
	cmd.Env = []string{"SECRET=1", "GOMAXPROCS=2"}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.ExtraFiles = []*os.File{leak}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	var p worker.Probe
	if err := json.Unmarshal(stdout.Bytes(), &p); err != nil {
		t.Fatalf("%v: %q", err, stdout.Bytes())
	}
	missing := slices.DeleteFunc(p.Missing, func(name string) bool { return raceDetector && name == "rlimit_data" })
	if len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
	if len(p.Env) > 0 {
		t.Errorf("environment: %v", p.Env)
	}
	for what, err := range p.Attempts {
		if err == "" {
			t.Errorf("it could %s", what)
		}
	}
	t.Logf("%d attempts: %v", len(p.Attempts), p.Attempts)
}
