// Package filelock provides mutual exclusion between processes through file locks, which the system releases when
// their holder dies. It does not depend on clocks.
package filelock

import (
	"errors"
	"io/fs"
	"os"
)

// Lock is a lock that this process holds.
type Lock struct{ file *os.File }

// Acquire waits until no other process holds the lock of a path, and takes it. It creates the file if it is missing.
func Acquire(path string) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // a path of the caller's own folder
		if err != nil {
			return nil, err
		}
		if err := takeLock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if isAt(f, path) {
			return &Lock{f}, nil
		}
		_ = f.Close() // its holder has removed it
	}
}

func isAt(f *os.File, path string) bool {
	held, err := f.Stat()
	there, err2 := os.Stat(path)
	return err == nil && err2 == nil && os.SameFile(held, there)
}

// Note replaces the contents of the lock file, which other processes can read without the lock.
func (l *Lock) Note(text []byte) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt(text, 0)
	return err
}

// Release releases the lock; its file remains.
func (l *Lock) Release() { _ = l.file.Close() }

// Remove removes the file, if the system allows it, and releases the lock.
func (l *Lock) Remove() {
	_ = os.Remove(l.file.Name())
	l.Release()
}

// IsHeld reports whether a process holds the lock of a path.
func IsHeld(path string) (bool, error) {
	f, err := os.Open(path) //nolint:gosec // as in Acquire
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return isLocked(f)
}
