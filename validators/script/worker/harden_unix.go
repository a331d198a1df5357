//go:build unix

package worker

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gavel-mcp/gavel/validators/script"
)

// denyFiles makes every attempt to open a descriptor fail, and every attempt to grow a file, including core
// dumps. Open descriptors remain usable.
func denyFiles(script.Setup) error {
	var none unix.Rlimit
	return errors.Join(
		unix.Setrlimit(unix.RLIMIT_CORE, &none),
		unix.Setrlimit(unix.RLIMIT_FSIZE, &none),
		unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
}

// closeInherited closes descriptors of a parent that did not mark them close-on-exec. Descriptors of this
// process's own runtime are marked.
func closeInherited() {
	for fd := 3; fd < 256; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// processorTime returns the processor time of this process so far, on all processors. It returns 0 if the
// system does not report it.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
