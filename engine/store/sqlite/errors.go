package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/gavel-mcp/gavel/engine/store"
)

// Errors of this driver, in addition to those of store.Store. Their texts explain what to do.
var (
	// ErrBusy is returned if another process held the write lock longer than Config.BusyTimeout.
	ErrBusy = errors.New("another process keeps the store locked; try again, or stop that process")
	// ErrDiskFull is returned if nothing more can be written. Acknowledged writes are safe.
	ErrDiskFull = errors.New("the disk is full; free some space and try again (acknowledged writes are safe)")
	// ErrReadOnly is returned if this user may not write to the file or its directory.
	ErrReadOnly = errors.New("the store cannot be written; check the owner and mode of the file and its directory")
	// ErrNotAStore is returned if the file is not a gavel store.
	ErrNotAStore = errors.New("this file is not a gavel store; choose another path")
	// ErrCorrupt is returned if the file is damaged. It wraps store.ErrDamaged.
	ErrCorrupt = fmt.Errorf("%w; restore a backup, or save what can still be read with gavel repair", store.ErrDamaged)
	// ErrGone is returned if the open file no longer has a name, so that new writes would be lost when the process
	// ends.
	ErrGone = errors.New("the store was moved, replaced or deleted while it was open; put its files back and start again")
	// ErrDisk is returned if the operating system failed to write.
	ErrDisk = errors.New("the disk or file system reports an error (a failing disk, a quota, a limit of file sizes); " +
		"see the system log")
	// ErrDiskRead is returned if the operating system failed to read.
	ErrDiskRead = errors.New("the disk or file system cannot read the store (a failing disk?); see the system log")
	// ErrTooManyFiles is returned if the process or the system has reached its limit of open files.
	ErrTooManyFiles = errors.New("the store cannot open another file: too many are open; raise the limit (ulimit -n), or lower the number of connections")
	// ErrNetworkFS is returned if the file is on a network file system. Locks and shared memory between processes are
	// not reliable enough there for SQLite.
	ErrNetworkFS = errors.New("the store is on a network file system, which cannot keep it safe; use a local disk")
)

// classifyError wraps an error of SQLite or of the file system in an error above.
func classifyError(err error) error {
	if err == nil {
		return nil
	}
	var known error
	var se *sqlite.Error
	switch {
	case errors.As(err, &se):
		if known = knownCode(se.Code()); known == ErrReadOnly && isOutOfFiles() { //nolint:errorlint // a constant of the table below
			known = ErrTooManyFiles
		}
	case isTooManyFiles(err):
		known = ErrTooManyFiles
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		known = ErrReadOnly
	case isNoSpace(err):
		known = ErrDiskFull
	case isUnexpectedValue(err):
		known = ErrCorrupt
	}
	if known == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", known, err)
}

// wrapCorrupt wraps an error of decoding a row in ErrCorrupt; nil stays nil.
func wrapCorrupt(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// isUnexpectedValue reports whether a column held a value that this program never writes. database/sql has no error type for
// this.
func isUnexpectedValue(err error) bool {
	return strings.Contains(err.Error(), "sql: Scan error on column")
}

// explainError classifies an error of a call, and adds the file's path if the file is the cause.
func (s *Store) explainError(err error) error {
	err = classifyError(err)
	if errors.Is(err, ErrNotAStore) || failureClass(err) != classOther {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	return err
}

func knownCode(code int) error {
	switch code {
	case sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_FSTAT, sqlite3.SQLITE_IOERR_SEEK,
		sqlite3.SQLITE_IOERR_CORRUPTFS: // EIO, unless SQLite reports it as a damaged page
		return ErrDiskRead
	}
	switch code & 0xff { // without the bits of extended codes
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return ErrBusy
	case sqlite3.SQLITE_FULL:
		return ErrDiskFull
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return ErrReadOnly
	case sqlite3.SQLITE_NOTADB:
		return ErrNotAStore
	case sqlite3.SQLITE_CORRUPT:
		return ErrCorrupt
	case sqlite3.SQLITE_IOERR:
		return ErrDisk
	}
	return nil
}

// isBusy reports whether another connection holds a lock.
func isBusy(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && knownCode(se.Code()) == ErrBusy //nolint:errorlint // a constant of the table above
}
