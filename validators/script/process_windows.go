package script

import (
	"os"
	"syscall"
)

// newGroupAttr keeps the console's Ctrl-C away from workers.
func newGroupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// systemEnv returns the variables without which the platform cannot start a process.
func systemEnv() []string { return []string{"SYSTEMROOT=" + os.Getenv("SYSTEMROOT")} }

func rootDir() string { return "" }

// isFault reports false, because on Windows a process that faulted has an exit code.
func isFault(*os.ProcessState) bool { return false }

func widenPipe(*os.File) {}
