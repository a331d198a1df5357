//go:build unix

package costtest

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time of this process so far, or 0 if unknown.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
