//go:build unix

package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is what this process has used so far, of all processors. It is 0
// when the system does not say.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
