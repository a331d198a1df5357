package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/process"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

type command struct {
	argv    []template
	program string // with its folder if the operator named one
	folder  string
	env     []string
	limit   int
	output  Output
	watcher *process.Watcher
	warns   []string
}

// resolveDirectory sets the command's working folder and program, and records warnings about them.
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

func (c *command) prepare(_ judge.EvidenceRequest, given document.JSON) (fetch, string) {
	argv, problem := c.expand(given)
	if problem != "" {
		return nil, problem
	}
	return func(ctx context.Context) (judge.FetchResult, error) { return c.run(ctx, argv), nil }, ""
}

func (c *command) expand(given document.JSON) (argv []string, problem string) {
	values, problem := templateValues(given)
	if problem != "" {
		return nil, problem
	}
	return expandArgv(c.argv, values)
}

func (c *command) run(ctx context.Context, argv []string) judge.FetchResult {
	cmd, err := process.Command(ctx, c.program, argv, c.env)
	if err != nil {
		return startFailure(err)
	}
	cmd.Dir = c.folder
	killed := process.EndWithContext(cmd)
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
		case <-time.After(3 * process.KillGrace): // the kernel is blocking it
		}
		return failedFetch(judge.FailureTimeout, "")
	}
	if killed.Load() {
		return failedFetch(judge.FailureTimeout, "")
	}
	return c.result(cmd.ProcessState, sink)
}

// start starts a command. The channel closes when it has ended and all its output is in sink. It uses its own pipe
// instead of exec's, so that the end of the command is noticed even if a child process still holds the pipe. Such a
// process is ended too.
func (c *command) start(cmd *exec.Cmd, sink io.Writer) (<-chan struct{}, error) {
	if c.output == OutputNone {
		return process.Start(cmd, c.watcher)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	if c.output == OutputText {
		cmd.Stderr = w
	}
	ended, err := process.Start(cmd, c.watcher)
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	copied, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(sink, r) //nolint:errcheck // closing the pipe ends the copy
	}()
	go func() {
		defer close(done)
		<-ended
		select {
		case <-copied:
		case <-time.After(process.KillGrace):
		}
		r.Close()
	}()
	return done, nil
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
			return failedFetch(judge.FailureMalformed, "the output of the command %s", problem)
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

// startFailure explains why a command could not start, without paths.
func startFailure(err error) judge.FetchResult {
	return failedFetch(judge.FailureUnavailable, "%s", process.Explain(err))
}

// optionLike reports whether programs would treat a text as an option.
func optionLike(s string) bool {
	return strings.HasPrefix(s, "-") || runtime.GOOS == "windows" && strings.HasPrefix(s, "/")
}
