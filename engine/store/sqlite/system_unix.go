//go:build unix

package sqlite

import (
	"errors"
	"io"
	"os"
	"syscall"
)

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func isTooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// isOutOfFiles reports whether the process can open no more files, or hardly any: some may have been closed since an
// open failed.
func isOutOfFiles() bool {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return false
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		return isTooManyFiles(err)
	}
	defer func() { _ = f.Close() }()                         // it was never used
	return uint64(f.Fd())+minSpareFiles >= uint64(limit.Cur) //nolint:gosec,unconvert // signed on some systems
}

// minSpareFiles is how close to the limit the lowest free descriptor may be before files count as used up.
const minSpareFiles = 4

func isReadOnlyFS(err error) bool { return errors.Is(err, syscall.EROFS) }

// The byte range of a file that SQLite locks.
const (
	lockedFrom   = 0x40000000
	lockedLength = 512
)

// isLockedElsewhere reports whether another process holds a SQLite lock on a file. It must not be called while this
// process has the file open, because closing a file drops the process's locks.
func isLockedElsewhere(path string) (locked bool, err error) {
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
