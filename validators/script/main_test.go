package script_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// long has the tests take the sizes and the limits that show most, rather than a sample.
var long = os.Getenv("GAVEL_LONG") != ""

// workerPath is the worker that the tests drive, "" for this test binary itself.
var workerPath string

func TestMain(m *testing.M) {
	worker.Main(readForTests) // this test binary is its own worker
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		os.Exit(withPlainWorker(m))
	}
	goleak.VerifyTestMain(m)
}

// withPlainWorker has the tests drive a worker without race detector: scripts under
// it run ten times slower and in memory that cannot be bounded. What it is to watch
// is this process.
func withPlainWorker(m *testing.M) int {
	dir, err := os.MkdirTemp("", "worker")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	workerPath = filepath.Join(dir, "worker.test")
	build := exec.Command("go", "test", "-c", "-o", workerPath, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build a worker: %v\n%s", err, out))
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		panic(err)
	}
	return code
}
