//go:build unix

package script

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// newGroupAttr keeps signals to the terminal's foreground group (Ctrl-C) away from workers: the gateway ends
// them itself after it has answered its callers.
func newGroupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// systemEnv returns the variables without which the platform cannot start a process.
func systemEnv() []string { return nil }

func rootDir() string { return "/" }

// isFault reports whether a signal for a fault, such as SIGSEGV, ended the process.
func isFault(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return false
	}
	switch status.Signal() {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSYS:
		return true
	}
	return false
}

// widenPipe enlarges a pipe, so that a request of typical size can be written before the worker reads it.
// Errors are ignored: the pipe then keeps its 64 KiB.
func widenPipe(pipe *os.File) {
	const setPipeSize, size = 1031, 256 << 10 // F_SETPIPE_SZ
	raw, err := pipe.SyscallConn()
	if err != nil || runtime.GOOS != "linux" {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, setPipeSize, size) })
}
