//go:build !unix && !windows

package script

import (
	"os"
	"syscall"
)

func ownGroup() *syscall.SysProcAttr { return nil }

func systemEnv() []string { return nil }

func rootDir() string { return "" }

// faulted says whether a process was ended by a fault of its own; here such a
// process has an exit code.
func faulted(*os.ProcessState) bool { return false }
