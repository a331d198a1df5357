//go:build linux && (amd64 || arm64)

package worker_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// probe starts a process that hardens itself like a worker and attempts everything that a worker must not be
// able to do. It is built like the tests, with or without C code.
func probe(t *testing.T, env ...string) (p worker.Probe, printed string, err error) {
	t.Helper()
	leak, err := os.Open("/etc/passwd") // simulates a descriptor that the parent forgot to protect
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{worker.ProbeName}
	cmd.Env = append(env, "SECRET=1", "GOMAXPROCS=2")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.ExtraFiles = []*os.File{leak}
	err = cmd.Run()
	if jsonErr := json.Unmarshal(stdout.Bytes(), &p); jsonErr != nil {
		t.Fatalf("%v, %v: %q, %s", err, jsonErr, stdout.Bytes(), stderr.Bytes())
	}
	return p, stderr.String(), err
}

func TestAWorkerCanReachNothing(t *testing.T) {
	p, printed, err := probe(t)
	if err != nil {
		t.Fatal(err, printed)
	}
	missing := slices.DeleteFunc(p.Missing, func(name string) bool { return worker.HasRaceDetector() && name == "rlimit_memory" })
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

// TestLandlockAlone: if a future system call passes the seccomp filter, files and connections remain
// inaccessible.
func TestLandlockAlone(t *testing.T) {
	out := []string{"read a file", "read a library", "read itself", "write a file", "list a folder", "dial", "start a process"}
	p, printed, err := probe(t, worker.ProbeOnly+"=landlock", worker.ProbeTry+"=UDP socket,"+strings.Join(out, ","))
	if err != nil {
		t.Fatal(err, printed)
	}
	for _, what := range out {
		if got := p.Attempts[what]; !strings.Contains(got, "permission denied") {
			t.Errorf("%s: %q", what, got)
		}
	}
	if p.Attempts["UDP socket"] != "" {
		t.Error("another protection was in force, this shows nothing")
	}
}

// TestMemoryLimitAlone: an allocation far beyond the limit ends the process with a message that the host
// recognises.
func TestMemoryLimitAlone(t *testing.T) {
	if worker.HasRaceDetector() {
		t.Skip("the race detector's shadow memory cannot be bounded")
	}
	_, printed, err := probe(t, worker.ProbeOnly+"=rlimit_memory", worker.ProbeTry+"=", "PROBE_ALLOCATE=1")
	if err == nil || !strings.Contains(printed, "out of memory") && !strings.Contains(printed, "cannot allocate memory") {
		t.Errorf("it ended with %v and printed %q", err, printed)
	}
	if _, _, err := probe(t, worker.ProbeOnly+"=none", worker.ProbeTry+"=", "PROBE_ALLOCATE=1"); err != nil {
		t.Errorf("without the limit: %v", err)
	}
}
