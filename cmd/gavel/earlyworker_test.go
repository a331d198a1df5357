package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/validators/script"
)

// TestWorkerStartsEarly shows that a script worker runs before the server-only packages are initialised. A worker
// that reads definitions runs from main.
func TestWorkerStartsEarly(t *testing.T) {
	const library = "init github.com/santhosh-tekuri/jsonschema/v6 "
	trace := func(name string) string {
		path, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		worker := exec.Cmd{Path: path, Args: []string{name}, Env: []string{"GODEBUG=inittrace=1"}, Stderr: &said}
		if _ = worker.Run(); worker.ProcessState.ExitCode() != script.ExitRefused { // started without limits
			t.Fatalf("%s ended with %v: %s", name, worker.ProcessState, said.String())
		}
		return said.String()
	}
	if early := trace(script.WorkerName); !strings.Contains(early, "gavel/validators/script/worker ") || strings.Contains(early, library) ||
		strings.Contains(early, "init github.com/dbos-inc/dbos-transact-golang/dbos ") || strings.Contains(early, "gavel/internal/operation ") {
		t.Errorf("a worker that runs scripts initialised more than it needs:\n%s", early)
	}
	if !strings.Contains(trace(script.CheckerName), library) {
		t.Error("the library is not in this program: name another package that only a server needs")
	}
}
