// Package process runs programs that an operator declared, for evidence and for upstreams.
//
// Guarantees:
//   - No shell parses arguments.
//   - A program runs in its own session, without a terminal, and without gavel's files and variables except those
//     that an operator named.
//   - Child processes in its process group end with it, even if this process is killed (see Watch).
//
// It must never decide what to run, or read a program's output.
package process

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// ErrBatchFile is returned for a Windows batch file, which is not run.
var ErrBatchFile = errors.New("the command is a batch file, so a shell would interpret its arguments; use a program")

// Command prepares a program with its arguments and exactly this environment. If the program cannot be run, Explain
// describes the error. When ctx ends, the whole process group is killed.
func Command(ctx context.Context, program string, argv, env []string) (*exec.Cmd, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	if ext := strings.ToLower(filepath.Ext(path)); runtime.GOOS == "windows" && (ext == ".bat" || ext == ".cmd") {
		return nil, ErrBatchFile
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...) //nolint:gosec // an operator declared it; arguments are never parsed
	cmd.Args[0] = argv[0]
	cmd.Env = append([]string{}, env...) // nil would inherit gavel's environment
	cmd.SysProcAttr = ownSession()
	cmd.Cancel = func() error { return Kill(cmd) }
	return cmd, nil
}

// Start starts a prepared Command. ended is closed when the program has ended and its remaining child processes were
// killed; cmd.ProcessState then has the result.
func Start(cmd *exec.Cmd, watcher *Watcher) (ended <-chan struct{}, err error) {
	started, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		superviseProgram(cmd, watcher, started)
	}()
	return done, <-started
}

// superviseProgram starts a program and waits until it has ended, all on one thread: the kernel kills the program
// when the thread that started it ends.
func superviseProgram(cmd *exec.Cmd, watcher *Watcher, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	keepFiles()
	keepSignals()
	watcher.ensureRunning()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	watcher.watchGroup(cmd.Process.Pid)
	started <- nil
	cmd.Wait()             //nolint:errcheck // see ProcessState
	killGroup(cmd.Process) //nolint:errcheck // usually the group is empty
	watcher.unwatchGroup(cmd.Process.Pid)
}

// Kill kills a started program and its child processes immediately.
func Kill(cmd *exec.Cmd) error { return killGroup(cmd.Process) }

// Terminate asks a started program and its child processes to end.
func Terminate(cmd *exec.Cmd) error { return terminateGroup(cmd.Process) }

// Explain describes why a program could not run, without paths.
func Explain(err error) string {
	switch {
	case errors.Is(err, ErrBatchFile):
		return err.Error()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return "the command or its directory does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "no permission to run the command"
	default:
		return "the command cannot be started"
	}
}

// Environment returns the environment of a program: the named variables, and those in set. Nil names select PATH,
// HOME, TMPDIR, LANG and those that the system needs.
func Environment(names []string, set map[string]string, lookup func(string) (string, bool)) []string {
	if names == nil {
		names = append([]string{"PATH", "HOME", "TMPDIR", "LANG"}, systemEnvironment()...)
	}
	out := []string{}
	for _, name := range names {
		if _, ours := set[name]; ours {
			continue
		}
		if v, ok := lookup(name); ok {
			out = append(out, name+"="+v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, name+"="+set[name])
	}
	return out
}

// CheckEnvironment checks the form of variables. For an invalid one, fail receives the tokens of a JSON pointer into
// an object with "environment" and "set".
func CheckEnvironment(names []string, set map[string]string, fail func(key string, token any, message string)) {
	wrong := func(name string) bool { return name == "" || strings.ContainsAny(name, "=\x00") }
	for i, name := range names {
		if wrong(name) {
			fail("environment", i, `a variable has a name, without "="; put values into "set"`)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if wrong(name) {
			fail("set", name, `a variable has a name, without "="`)
		} else if strings.Contains(set[name], "\x00") {
			fail("set", name, "a variable must not contain NUL")
		}
	}
}
