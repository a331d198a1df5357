package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
)

// RunProgram runs a program of the operator's with an input, as a source's command is run:
// without a shell, in a session of its own, with the least of gavel's environment, and with
// what it starts ended with it. What it writes is dropped. A nil error is exit code 0.
func RunProgram(ctx context.Context, argv []string, input []byte) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return errors.New(startFailure(err).Detail)
	}
	if isBatch(path) {
		return errors.New(batchFile)
	}
	var killed atomic.Bool
	cmd := exec.CommandContext(ctx, path, argv[1:]...) //nolint:gosec // an operator declared it
	cmd.Args[0], cmd.Env, cmd.Stdin = argv[0], buildEnvironment(Source{}, os.LookupEnv), bytes.NewReader(input)
	cmd.SysProcAttr, cmd.WaitDelay = ownSession(), grace
	cmd.Cancel = func() error {
		killed.Store(true)
		return killGroup(cmd.Process)
	}
	c := command{output: OutputNone}
	ended, err := c.start(cmd, io.Discard)
	if err != nil {
		return errors.New(startFailure(err).Detail)
	}
	<-ended
	switch {
	case killed.Load():
		return context.Cause(ctx)
	case cmd.ProcessState == nil || !cmd.ProcessState.Success():
		return fmt.Errorf("the program ended with %s", strings.TrimSpace(cmd.ProcessState.String()))
	}
	return nil
}
