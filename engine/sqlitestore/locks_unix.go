//go:build unix

package sqlitestore

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// The bytes of a file that SQLite locks.
const (
	lockedFrom   = 0x40000000
	lockedLength = 512
)

// lockedElsewhere reports whether another process holds a lock of SQLite's on a file. It
// must not be asked while this process has the file open: closing a file drops its locks.
func lockedElsewhere(path string) (locked bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	asked := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: lockedFrom, Len: lockedLength}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &asked); err != nil {
		return false, err
	}
	return asked.Type != syscall.F_UNLCK, nil
}
