package script

import (
	"os"
	"syscall"
)

// widenPipe lets a request of usual size be written at once, without waiting for the
// worker to read. Failing is fine: the pipe then keeps its 64 KiB.
func widenPipe(pipe *os.File) {
	const setPipeSize, size = 1031, 256 << 10 // F_SETPIPE_SZ
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, setPipeSize, size)
	})
}
