package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// TestScripts runs testdata/script against the real main. Set UPDATE_SCRIPTS to replace expected by actual output.
//
// Starting the program costs more than most commands. So one process executes a script's run and exits commands
// one after another. With GAVEL_LONG=1, each command has its own process, as exec commands always have.
func TestScripts(t *testing.T) {
	needsProgram(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"capture": capture, "run": runGavelInScript, "exits": exits, "database": makeDatabaseInScript,
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "postgres":
				_, missing, err := pgtest.Find()
				return missing == "" && driver.Find("postgres://") != nil, err
			}
			if of, ok := strings.CutPrefix(name, "module:"); ok {
				return module.IsRegistered(of), nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
		Setup: func(env *testscript.Env) error {
			testdata, err := filepath.Abs("../../testdata")
			if err != nil {
				return err
			}
			env.Setenv("TESTDATA", testdata)
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
			commands := &scriptCommands{}
			for _, v := range env.Vars {
				name, _, _ := strings.Cut(v, "=")
				commands.variables = append(commands.variables, name)
			}
			env.Values["commands"] = commands
			return nil
		},
	})
}

// capture sets a variable to the match of a pattern's group in the last command's stdout: capture NAME PATTERN.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME PATTERN")
	}
	found := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) != 2 {
		ts.Fatalf("%q is not in the output", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// makeDatabaseInScript sets a variable to the URL of a new PostgreSQL database: database NAME.
func makeDatabaseInScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: database NAME")
	}
	server, _, err := pgtest.Find()
	ts.Check(err)
	at, drop, err := server.MakeDatabase()
	ts.Check(err)
	ts.Defer(func() { ts.Check(drop()) })
	ts.Setenv(args[0], at)
}

// runGavelInScript runs gavel, which must succeed, or fail after "!": run gavel ARGUMENT...
func runGavelInScript(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 1 || args[0] != "gavel" {
		ts.Fatalf("usage: run gavel ARGUMENT...")
	}
	if code := runInScript(ts, args[1:]); (code != 0) != neg {
		ts.Fatalf("exit code %d", code)
	}
}

// exits runs gavel, which must exit with a code: exits CODE gavel ARGUMENT...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "gavel" {
		ts.Fatalf("usage: exits CODE gavel ARGUMENT...")
	}
	if code := runInScript(ts, args[2:]); strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// scriptCommands is the process that executes the commands of one script.
type scriptCommands struct {
	variables []string // names of the variables at the script's start
	requests  *json.Encoder
	answers   *json.Decoder
}

// commandRequest is a command to execute, and commandAnswer its result.
type (
	commandRequest struct {
		Dir  string
		Env  []string
		Args []string
	}
	commandAnswer struct {
		Code           int
		Stdout, Stderr []byte
	}
)

var setInScript = regexp.MustCompile(`(?m)^env (\w+)=`)

// runInScript runs gavel in the script's folder, with its variables, and returns the exit code.
func runInScript(ts *testscript.TestScript, args []string) int {
	if storetest.Long() {
		program, err := exec.LookPath("gavel") // the test's binary, regardless of the script's path
		ts.Check(err)
		var exit *exec.ExitError
		if err := ts.Exec(program, args...); !errors.As(err, &exit) {
			ts.Check(err)
			return 0
		}
		return exit.ExitCode()
	}
	c := ts.Value("commands").(*scriptCommands)
	if c.requests == nil {
		ts.Check(c.start(ts))
	}
	r := commandRequest{Dir: ts.MkAbs("."), Args: args}
	for _, name := range c.variables {
		r.Env = append(r.Env, name+"="+ts.Getenv(name))
	}
	ts.Check(c.requests.Encode(r))
	var answer commandAnswer
	ts.Check(c.answers.Decode(&answer))
	_, _ = ts.Stdout().Write(answer.Stdout)
	_, _ = ts.Stderr().Write(answer.Stderr)
	return answer.Code
}

func (c *scriptCommands) start(ts *testscript.TestScript) error {
	text, err := os.ReadFile(filepath.Join("testdata", "script", ts.Name()+".txtar"))
	if err != nil {
		return err
	}
	for _, set := range setInScript.FindAllSubmatch(text, -1) {
		c.variables = append(c.variables, string(set[1]))
	}
	cmd := exec.Command("gavel-commands")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ts.Defer(func() {
		_ = stdin.Close()
		ts.Check(cmd.Wait())
	})
	c.requests, c.answers = json.NewEncoder(stdin), json.NewDecoder(stdout)
	return nil
}

func init() { programs["gavel-commands"] = runCommands }

// runCommands is the program "gavel-commands" of the tests: it executes gavel commands until its standard input
// ends.
func runCommands() {
	requests, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r commandRequest
		if err := requests.Decode(&r); err != nil {
			if !errors.Is(err, io.EOF) {
				fail(err)
			}
			return
		}
		if err := os.Chdir(r.Dir); err != nil {
			fail(err)
		}
		os.Clearenv()
		for _, v := range r.Env {
			name, value, _ := strings.Cut(v, "=")
			if err := os.Setenv(name, value); err != nil {
				fail(err)
			}
		}
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), r.Args, strings.NewReader(""), &stdout, &stderr)
		if err := answers.Encode(commandAnswer{code, stdout.Bytes(), stderr.Bytes()}); err != nil {
			fail(err)
		}
	}
}
