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

// long makes the tests use full sizes and default limits instead of a sample.
var long = os.Getenv("GAVEL_LONG") != ""

// workerPath is the worker binary for the tests; "" is this test binary.
var workerPath string

func TestMain(m *testing.M) {
	worker.Main(readForTests) // this test binary is its own worker
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		os.Exit(withPlainWorker(m))
	}
	goleak.VerifyTestMain(m)
}

// withPlainWorker runs the tests with a worker that is built without the race detector. Under it, scripts
// would run ten times slower and their memory could not be limited. The race detector watches only this
// process.
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
