package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gavel-mcp/gavel/internal/process"
)

// RunProgram runs an operator's program with the given input, in the same way as a source's command: without a shell,
// in its own session, with a minimal environment. Its child processes end with it. Its output is discarded. A nil
// error means exit code 0.
func RunProgram(ctx context.Context, argv []string, input []byte) error {
	cmd, err := process.Command(ctx, argv[0], argv, process.Environment(nil, nil, os.LookupEnv))
	if err != nil {
		return errors.New(process.Explain(err))
	}
	cmd.Stdin = bytes.NewReader(input)
	killed := endWithContext(cmd)
	ended, err := process.Start(cmd, nil)
	if err != nil {
		return errors.New(process.Explain(err))
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
