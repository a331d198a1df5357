//go:build !unix && !windows

package script

import (
	"os"
	"syscall"
)

func newGroupAttr() *syscall.SysProcAttr { return nil }

func systemEnv() []string { return nil }

func rootDir() string { return "" }

// isFault says whether a process was ended by a fault of its own; here such a
// process has an exit code.
func isFault(*os.ProcessState) bool { return false }
