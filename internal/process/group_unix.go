//go:build unix

package process

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// ownSession puts a command into its own session and thus its own process group. Its child processes can be ended
// with it, it receives no interrupt from a terminal, and it has no terminal to read from.
func ownSession() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	killWithThread(attr)
	return attr
}

// killWithThread lets the kernel kill a command when the starting thread ends, if the system supports that.
var killWithThread = func(*syscall.SysProcAttr) {}

// canEndGroups reports that killGroupOf ends a command's child processes.
const canEndGroups = true

// detachedSession is for a process that outlives gavel: signals for gavel do not reach it.
func detachedSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// ignoreSignals keeps a watcher alive until its line closes. A service manager signals all processes, but gavel still
// has commands to end.
func ignoreSignals() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
}

// keepFiles keeps commands from inheriting files that a parent left open for gavel. Files that gavel opens itself are
// already closed in them.
func keepFiles() {
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // open files cannot be listed
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// ignoredSignals are the signals that were ignored when gavel started, by nohup or a background shell. They are recorded at
// startup, because signal.Ignored is unreliable once a signal has been handled and released. Go itself handles other
// relevant signals when it starts a program.
var ignoredSignals = slices.DeleteFunc([]os.Signal{syscall.SIGHUP, syscall.SIGINT}, func(s os.Signal) bool { return !signal.Ignored(s) })

// keepSignals keeps these signals ignored in gavel but not in commands: exec preserves ignored signals and resets
// handled ones (execve(2)). So gavel handles them and does nothing.
var keepSignals = sync.OnceFunc(func() {
	if len(ignoredSignals) > 0 { // Notify without signals would select all
		signal.Notify(make(chan os.Signal, 1), ignoredSignals...) // the channel is never read, so further signals are dropped
	}
})

// killGroup kills a command and its child processes. After the command itself has ended, its group id stays reserved
// while the group has members.
func killGroup(p *os.Process) error { return killGroupOf(p.Pid) }

// terminateGroup asks a command and its child processes to end.
func terminateGroup(p *os.Process) error { return signalGroup(p.Pid, syscall.SIGTERM) }

func killGroupOf(pid int) error { return signalGroup(pid, syscall.SIGKILL) }

func signalGroup(pid int, signal syscall.Signal) error {
	err := syscall.Kill(-pid, signal)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

func systemEnvironment() []string { return nil }
