package script

import (
	"os"
	"syscall"
)

// newGroupAttr keeps Ctrl-C of the console away from workers.
func newGroupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// systemEnv is what the platform needs to start any process at all.
func systemEnv() []string { return []string{"SYSTEMROOT=" + os.Getenv("SYSTEMROOT")} }

func rootDir() string { return "" }

// isFault says whether a process was ended by a fault of its own; here such a
// process has an exit code.
func isFault(*os.ProcessState) bool { return false }

func widenPipe(*os.File) {}
