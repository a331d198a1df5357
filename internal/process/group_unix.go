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

// ownSession makes a command the head of a session, and so of a process group, of its own:
// everything it starts can be ended with it, an interrupt from a terminal stays away,
// and there is no terminal to read from, whoever started gavel.
func ownSession() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	endWithThread(attr)
	return attr
}

// endWithThread has the kernel end a command with the thread that starts it, where it can.
var endWithThread = func(*syscall.SysProcAttr) {}

// groupsEnd says that killGroupOf ends what a command has started.
const groupsEnd = true

// detachedSession is how a process runs that outlives gavel: no signal that is meant for gavel
// reaches it.
func detachedSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// ignoreSignals has a watcher end with its line and no sooner: a service manager tells
// everybody to stop, and gavel still has commands to end.
func ignoreSignals() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
}

// keepFiles keeps from commands what somebody has left open for gavel itself. What
// gavel opens is closed in them already.
func keepFiles() {
	open, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // what is not there cannot be told
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// deaf are the signals that gavel was started deaf to, by nohup or by a shell in the
// background. They are looked for at the start: once somebody has taken a signal and let it
// go, Go no longer tells. Of others Go takes what matters when a program starts.
var deaf = slices.DeleteFunc([]os.Signal{syscall.SIGHUP, syscall.SIGINT}, func(s os.Signal) bool { return !signal.Ignored(s) })

// keepSignals keeps that from commands: what is ignored stays ignored in a command, and what
// is taken does not (execve(2)). gavel itself goes on as if nothing came.
var keepSignals = sync.OnceFunc(func() {
	if len(deaf) > 0 { // no signals would be all of them
		signal.Notify(make(chan os.Signal, 1), deaf...) // nobody reads it: the rest is dropped
	}
})

// killGroup ends a command and what it started. After the command itself has ended
// the group's number stays its own as long as somebody is in the group.
func killGroup(p *os.Process) error { return killGroupOf(p.Pid) }

// terminateGroup asks a command and what it started to end.
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
