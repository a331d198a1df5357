package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/pgtest"
	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// TestMain makes the test binary its own script worker and watcher. It is also the program "gavel" for the scripts
// and for every test that starts a server.
//
// With the race detector, the program is not this binary: a worker that is many times slower misses the limits of
// scripts, and cannot have a limit on its address space. See needsProgram.
func TestMain(m *testing.M) {
	worker.Main(workflow.AnswerLintRequest)
	if process.Watch(os.Args, os.Stdin) {
		return
	}
	if module.FindProcess(filepath.Base(os.Args[0])) != nil {
		main()
	}
	if raceDetector() {
		delete(programs, "gavel")
	}
	testscript.Main(sized{m}, programs)
}

// programs are the functions that this binary runs, by the name that it is called with.
var programs = map[string]func(){}

func init() { programs["gavel"], programs["play"] = main, playSession }

var programFlag = flag.String("program", "", "the gavel to test instead of one built from this tree, such as one that a package has installed")

// raceDetector reports whether this test binary detects data races.
func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// sized runs the tests at the sizes that the flags set.
type sized struct{ m *testing.M }

// Run implements testscript.TestingM.
func (s sized) Run() int {
	flag.Parse()
	defer pgtest.StopShared()
	storetest.UseMemory()
	for _, v := range os.Environ() { // settings of this machine must not affect the tests
		if name, _, _ := strings.Cut(v, "="); cli.IsSetting(name) && name != "GAVEL_LONG" && name != pgtest.Variable {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
	unless := func(name, value string) {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				panic(err)
			}
		}
	}
	unless("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))) // many tests wait for a server or for a timeout
	if storetest.Long() {
		unless("load.clients", "50")
		unless("load.time", "2s")
		unless("fairness.calls", "12")
	}
	if *programFlag != "" {
		if err := os.Setenv("PATH", filepath.Dir(*programFlag)+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
			panic(err)
		}
	}
	if raceDetector() && storetest.Long() {
		return s.runBuilt()
	}
	return s.m.Run()
}

// needsProgram skips a test under the race detector. The detector would watch only the test, not the program, which
// is built without it; the tests of the program's packages cover races there. With GAVEL_LONG=1 the test runs anyway.
func needsProgram(t testing.TB) {
	t.Helper()
	if raceDetector() && !storetest.Long() {
		t.Skip("the race detector does not watch the program")
	}
}

// runBuilt runs tests with a gavel in the PATH that was built like a release.
func (s sized) runBuilt() int {
	dir, err := os.MkdirTemp("", "gavel-test-")
	if err != nil {
		slog.Error("prepare the program", "error", err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.CommandContext(context.Background(), "go", "build", "-o", dir, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		slog.Error("build the program", "error", err, "output", string(out))
		return 1
	}
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		slog.Error("prepare the program", "error", err)
		return 1
	}
	return s.m.Run()
}

// program returns the path of a gavel built like a release: without the race detector, and with its own name.
func program(t *testing.T) string {
	t.Helper()
	needsProgram(t)
	path, err := exec.LookPath("gavel")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// plainSandbox returns a compiler whose scripts run in that program.
func plainSandbox(t *testing.T) *validators.Compiler {
	t.Helper()
	pool, err := script.NewPool(script.Config{WorkerPath: program(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return validators.NewCompiler(pool, validators.Options{})
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
