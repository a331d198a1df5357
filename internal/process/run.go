package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// KillGrace is how long a killed program may take to end, and its output to be read. It matters only for processes that
// a program left in another session, or that the kernel cannot end.
const KillGrace = time.Second

// EndWithContext limits how long a program lives after its context ends. The result reports whether the program was
// killed for that reason.
func EndWithContext(cmd *exec.Cmd) (killed *atomic.Bool) {
	killed = new(atomic.Bool)
	kill := cmd.Cancel
	cmd.WaitDelay = KillGrace
	cmd.Cancel = func() error {
		killed.Store(true)
		return kill()
	}
	return killed
}

// Run runs a program with the given input and a minimal environment, and discards its output. A nil error means exit
// code 0.
func Run(ctx context.Context, argv []string, input []byte) error {
	cmd, err := Command(ctx, argv[0], argv, Environment(nil, nil, os.LookupEnv))
	if err != nil {
		return errors.New(Explain(err))
	}
	cmd.Stdin = bytes.NewReader(input)
	killed := EndWithContext(cmd)
	ended, err := Start(cmd, nil)
	if err != nil {
		return errors.New(Explain(err))
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
