package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/judge"
)

// grace is how long what was killed may take to end, and what was written before to
// be read. Nothing waits for it but what a command left behind in a session of its
// own, or a process that the kernel cannot end.
const grace = time.Second

type command struct {
	argv    []template
	program string // with its folder where the operator named one
	folder  string
	env     []string
	limit   int
	output  Output
	watcher *watcher
	warns   []string
}

// resolveDirectory finds out where the command runs, and what is wrong with that now.
func (c *command) resolveDirectory(name, dir, directory string) {
	c.folder = directory
	if !filepath.IsAbs(directory) {
		c.folder = filepath.Join(dir, directory)
	}
	c.program = c.argv[0].expand(nil, nil)
	if strings.ContainsRune(filepath.ToSlash(c.program), '/') && !filepath.IsAbs(c.program) {
		c.program = filepath.Join(c.folder, c.program)
	}
	if info, err := os.Stat(c.folder); err != nil || !info.IsDir() {
		c.warns = append(c.warns, fmt.Sprintf("evidence source %q: the directory %s does not exist", name, c.folder))
	}
	if _, err := exec.LookPath(c.program); err != nil {
		c.warns = append(c.warns, fmt.Sprintf("evidence source %q: the command %q does not exist or cannot be run", name, c.program))
	}
}

func (c *command) warnings() []string { return c.warns }

// buildEnvironment is the environment of a command: what was named, and nothing else.
func buildEnvironment(s Source, lookup func(string) (string, bool)) []string {
	names := s.Environment
	if names == nil {
		names = append([]string{"PATH", "HOME", "TMPDIR", "LANG"}, systemEnvironment()...)
	}
	out := []string{} // not nil, which would be all of gavel's own
	for _, name := range names {
		if _, ours := s.Set[name]; ours {
			continue
		}
		if v, ok := lookup(name); ok {
			out = append(out, name+"="+v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Set)) {
		out = append(out, name+"="+s.Set[name])
	}
	return out
}

func (c *command) prepare(values map[string]string) (func(context.Context) judge.FetchResult, string) {
	argv, problem := expandArgv(c.argv, values)
	if problem != "" {
		return nil, problem
	}
	return func(ctx context.Context) judge.FetchResult { return c.run(ctx, argv) }, ""
}

func (c *command) run(ctx context.Context, argv []string) judge.FetchResult {
	path, err := exec.LookPath(c.program)
	if err != nil {
		return startFailure(err)
	}
	if isBatch(path) {
		return failedFetch(judge.FailureUnavailable, batchFile)
	}
	var killed atomic.Bool
	cmd := exec.CommandContext(ctx, path, argv[1:]...) //nolint:gosec // an operator declared it; arguments are arguments, whatever they hold
	cmd.Args[0] = argv[0]
	cmd.Dir, cmd.Env = c.folder, c.env
	cmd.SysProcAttr = ownSession()
	cmd.WaitDelay = grace
	cmd.Cancel = func() error {
		killed.Store(true)
		return killGroup(cmd.Process)
	}
	sink := newCapture(c.limit)
	ended, err := c.start(cmd, sink)
	switch {
	case ctx.Err() != nil && err != nil:
		return failedFetch(judge.FailureTimeout, "")
	case err != nil:
		return startFailure(err)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(3 * grace): // the kernel holds it
		}
		return failedFetch(judge.FailureTimeout, "")
	}
	if killed.Load() {
		return failedFetch(judge.FailureTimeout, "")
	}
	return c.result(cmd.ProcessState, sink)
}

const batchFile = "the command is a batch file, whose arguments a shell would read; use a program"

func isBatch(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return runtime.GOOS == "windows" && (ext == ".bat" || ext == ".cmd")
}

// start starts a command and says when it has ended and everything that it wrote is
// in sink. The pipe is ours and not that of exec, so that the end of the command is
// seen when something that it started still holds the pipe: that is ended too.
func (c *command) start(cmd *exec.Cmd, sink io.Writer) (ended <-chan struct{}, err error) {
	var r, w *os.File
	if c.output != OutputNone {
		if r, w, err = os.Pipe(); err != nil {
			return nil, err
		}
		cmd.Stdout = w
		if c.output == OutputText {
			cmd.Stderr = w
		}
	}
	started, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		c.superviseCommand(cmd, r, w, sink, started)
	}()
	return done, <-started
}

// superviseCommand starts a command and is there until it has ended, always on one thread: the
// kernel ends the command when the thread that started it is gone.
func (c *command) superviseCommand(cmd *exec.Cmd, r, w *os.File, sink io.Writer, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	keepFiles()
	keepSignals()
	c.watcher.ensureRunning()
	err := cmd.Start()
	if w != nil {
		w.Close()
	}
	if err != nil {
		if r != nil {
			r.Close()
		}
		started <- err
		return
	}
	c.watcher.watchGroup(cmd.Process.Pid)
	started <- nil
	copied := make(chan struct{})
	if r != nil {
		go func() {
			defer close(copied)
			io.Copy(sink, r) //nolint:errcheck // a pipe that is closed is what ends it
		}()
	}
	cmd.Wait()             //nolint:errcheck // ProcessState says it
	killGroup(cmd.Process) //nolint:errcheck // mostly nobody is left
	c.watcher.unwatchGroup(cmd.Process.Pid)
	if r == nil {
		return
	}
	select {
	case <-copied:
	case <-time.After(grace):
	}
	r.Close()
}

func (c *command) result(state *os.ProcessState, sink *capture) judge.FetchResult {
	if state == nil || !state.Exited() {
		return failedFetch(judge.FailureStopped, "the command was killed by a signal")
	}
	var d objectWriter
	d.set("exitCode", state.ExitCode())
	truncated := false
	switch c.output {
	case OutputJSON:
		whole, ok := sink.complete()
		if !ok {
			return failedFetch(judge.FailureTooLarge, "the command wrote more than %d bytes", c.limit)
		}
		whole = bytes.TrimSpace(whole)
		if problem := checkJSON(whole, c.limit); problem != "" {
			return failedFetch(judge.FailureMalformed, "what the command wrote %s", problem)
		}
		d.set("result", json.RawMessage(whole))
	case OutputNone:
	default:
		var text string
		text, truncated = sink.text()
		d.set("output", text)
	}
	return judge.FetchResult{Content: d.end(), Truncated: truncated}
}

// startFailure says why a command does not run, without paths.
func startFailure(err error) judge.FetchResult {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		return failedFetch(judge.FailureUnavailable, "the command or its directory does not exist")
	case errors.Is(err, fs.ErrPermission):
		return failedFetch(judge.FailureUnavailable, "no permission to run the command")
	default:
		return failedFetch(judge.FailureUnavailable, "the command cannot be started")
	}
}

// optionLike reports whether programs would take a text for an option.
func optionLike(s string) bool {
	return strings.HasPrefix(s, "-") || runtime.GOOS == "windows" && strings.HasPrefix(s, "/")
}
