//go:build unix

package evidence

import (
	"errors"
	"os"
	"syscall"
)

// ownGroup makes a command the head of a process group, so that everything it starts
// can be ended with it. It also keeps an interrupt from the terminal away.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends a command and what it started. After the command itself has ended
// the group's number stays its own as long as somebody is in the group.
func killGroup(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func systemEnvironment() []string { return nil }
