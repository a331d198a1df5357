package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// TestMain makes the test binary its own script worker, and the program "gavel"
// for the scripts and for every test that starts a server.
func TestMain(m *testing.M) {
	worker.Main()
	testscript.Main(m, map[string]func(){"gavel": main, "echo-mcp": echoServer})
}

// TestScripts runs testdata/script over the real main. Set UPDATE_SCRIPTS to
// rewrite what they expect with what was seen.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
			return nil
		},
	})
}
