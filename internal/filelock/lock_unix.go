//go:build unix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func takeLock(f *os.File) error { return flockFile(f, unix.LOCK_EX) }

func isLocked(f *os.File) (bool, error) {
	err := flockFile(f, unix.LOCK_SH|unix.LOCK_NB) // shared, so that two concurrent checks do not block each other
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func flockFile(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
