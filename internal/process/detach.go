package process

import (
	"bytes"
	"errors"
	"os/exec"
)

// Detached is how a process ended that StartDetached started.
type Detached struct {
	Output string // what it wrote to stdout
	Err    error  // nil is exit code 0
}

// StartDetached starts a program, under a name, that outlives this process and whoever started it: it
// is in a session of its own and holds no file of theirs. It has input as stdin, all of which it has
// been given when this returns. ended gets one value; nobody need read it.
func StartDetached(program, name string, env []string, input []byte) (ended <-chan Detached, err error) {
	keepFiles()
	cmd := exec.Command(program) //nolint:gosec,noctx // this program itself, which outlives every request
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
