package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func ownSession() *syscall.SysProcAttr { return nil }

// detachedSession keeps the console's signals away.
func detachedSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

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
	return []string{"SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "LOCALAPPDATA"}
}
