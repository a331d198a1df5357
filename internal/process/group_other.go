//go:build !unix

package process

import (
	"os"
	"runtime"
	"syscall"
)

func ownSession() *syscall.SysProcAttr { return nil }

func detachedSession() *syscall.SysProcAttr { return nil }

func ignoreSignals() {}

func keepFiles() {}

func keepSignals() {}

// groupsEnd says that killGroupOf ends what a command has started.
const groupsEnd = false

func killGroupOf(int) error { return os.ErrProcessDone }

// killGroup ends a command. What it started is not reached here: a fetch only stops
// waiting for it.
func killGroup(p *os.Process) error { return p.Kill() }

// terminateGroup kills a command: there is no signal that asks.
func terminateGroup(p *os.Process) error { return p.Kill() }

// systemEnvironment is what programs need to start at all.
func systemEnvironment() []string {
	if runtime.GOOS != "windows" {
		return nil
	}
	return []string{"SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "LOCALAPPDATA"}
}
