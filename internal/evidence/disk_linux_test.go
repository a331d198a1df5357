package evidence_test

import (
	"os/signal"
	"strings"
	"syscall"
)

// fillDisk lets a process write no file of more than 100 bytes, where a folder's name says so.
func fillDisk(folder string) {
	if strings.HasSuffix(folder, "disk-is-full") {
		signal.Ignore(syscall.SIGXFSZ)
		_ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100, Max: 100})
	}
}
