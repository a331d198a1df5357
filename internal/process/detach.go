package process

import (
	"bytes"
	"errors"
	"os/exec"
)

// Detached is the result of a process started by StartDetached.
type Detached struct {
	Output string // its standard output
	Err    error  // nil for exit code 0
}

// StartDetached starts a program under a name (argv[0]). The program outlives this process and its parent, runs in its
// own session, and holds none of their open files. On return, input has been written to its stdin. ended receives one
// value, which need not be read.
func StartDetached(program, name string, env []string, input []byte) (ended <-chan Detached, err error) {
	keepFiles()
	cmd := exec.Command(program) //nolint:gosec,noctx // an operator's or gavel's own program, which outlives every request
	cmd.Args, cmd.Env = []string{name}, env
	cmd.SysProcAttr = detachedSession()
	var output bytes.Buffer
	cmd.Stdout = &output
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	done := make(chan Detached, 1)
	_, err = stdin.Write(input)
	err = errors.Join(err, stdin.Close())
	go func() {
		err := cmd.Wait()
		done <- Detached{output.String(), err}
	}()
	return done, err
}
