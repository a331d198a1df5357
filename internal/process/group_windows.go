package process

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func ownSession() *syscall.SysProcAttr { return nil }

// detachedSession shields the process from console signals.
func detachedSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

func ignoreSignals() {}

func keepFiles() {}

func keepSignals() {}

// canEndGroups reports that killGroupOf ends a command's child processes.
const canEndGroups = false

func killGroupOf(int) error { return os.ErrProcessDone }

// killGroup kills a command. It does not reach child processes: a fetch only stops waiting for them.
func killGroup(p *os.Process) error { return p.Kill() }

// terminateGroup kills a command, because Windows has no signal that asks it to end.
func terminateGroup(p *os.Process) error { return p.Kill() }

// systemEnvironment returns the variables that programs need in order to start.
func systemEnvironment() []string {
	return []string{"SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "LOCALAPPDATA"}
}
