// Package process runs the programs that an operator declared, for evidence and for
// upstreams alike.
//
// It promises that no shell reads arguments, that a program runs in a session of its own,
// without a terminal, a file or a variable of gavel's that no operator named, and that what
// it starts and leaves in its process group ends with it, also when this process is killed
// (see Watch).
//
// It must never decide what is run, or read what a program writes.
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

// ErrBatchFile is why a batch file of Windows is not run.
var ErrBatchFile = errors.New("the command is a batch file, whose arguments a shell would read; use a program")

// Command prepares a program with its arguments and exactly this environment. The error of
// one that cannot be run is for Explain. When ctx ends the whole group is killed.
func Command(ctx context.Context, program string, argv, env []string) (*exec.Cmd, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	if ext := strings.ToLower(filepath.Ext(path)); runtime.GOOS == "windows" && (ext == ".bat" || ext == ".cmd") {
		return nil, ErrBatchFile
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...) //nolint:gosec // an operator declared it; arguments are arguments, whatever they hold
	cmd.Args[0] = argv[0]
	cmd.Env = append([]string{}, env...) // not nil, which would be all of gavel's own
	cmd.SysProcAttr = ownSession()
	cmd.Cancel = func() error { return Kill(cmd) }
	return cmd, nil
}

// Start starts what Command prepared. ended is closed when the program has ended and what it
// had started was killed; cmd.ProcessState says how it ended.
func Start(cmd *exec.Cmd, watcher *Watcher) (ended <-chan struct{}, err error) {
	started, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		superviseProgram(cmd, watcher, started)
	}()
	return done, <-started
}

// supervise starts a program and is there until it has ended, always on one thread: the
// kernel ends the program when the thread that started it is gone.
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
	cmd.Wait()             //nolint:errcheck // ProcessState says it
	killGroup(cmd.Process) //nolint:errcheck // mostly nobody is left
	watcher.unwatchGroup(cmd.Process.Pid)
}

// Kill ends a program that was started, and what it started, at once.
func Kill(cmd *exec.Cmd) error { return killGroup(cmd.Process) }

// Terminate asks a program that was started, and what it started, to end.
func Terminate(cmd *exec.Cmd) error { return terminateGroup(cmd.Process) }

// Explain says why a program does not run, without paths.
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

// Environment is the environment of a program: the variables that were named, and set; nil
// names are PATH, HOME, TMPDIR, LANG and what the system needs.
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

// CheckEnvironment checks the form of variables. fail gets a JSON pointer's tokens to one
// that is wrong, in an object with "environment" and "set".
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
