package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/gavel-mcp/gavel/engine/store"
)

// Errors of this driver beside those of store.Store. Their texts say what to do.
var (
	// ErrBusy: another process held the write lock longer than Config.BusyTimeout.
	ErrBusy = errors.New("another process keeps the store locked; try again, or end that process")
	// ErrDiskFull: nothing more can be written; what was acknowledged is safe.
	ErrDiskFull = errors.New("the disk is full; free some space and try again (what was acknowledged is safe)")
	// ErrReadOnly: the file or its directory cannot be written by this user.
	ErrReadOnly = errors.New("the store cannot be written; mind the owner and mode of the file and its directory")
	// ErrNotAStore: the file is something else.
	ErrNotAStore = errors.New("this file is not a gavel store; give another path")
	// ErrCorrupt: the file is damaged. It is a store.ErrDamaged.
	ErrCorrupt = fmt.Errorf("%w; restore a backup, or save what can still be read with gavel repair", store.ErrDamaged)
	// ErrGone: the file that is open has no name any more, so that what is written now
	// would be lost with the process.
	ErrGone = errors.New("the store was moved, replaced or deleted while it was open; put its files back and start again")
	// ErrDisk: the operating system could not write.
	ErrDisk = errors.New("the disk or file system reports an error (a failing disk, a quota, a limit of file sizes); " +
		"the system's log says more")
	// ErrDiskRead: the operating system could not read.
	ErrDiskRead = errors.New("the disk or file system cannot read the store (a failing disk?); the system's log says more")
	// ErrTooManyFiles: the process, or the system, may not open another file.
	ErrTooManyFiles = errors.New("too many files are open, so that the store cannot open one more; raise the limit (ulimit -n), or lower the number of connections")
	// ErrNetworkFS: the file is on a network file system, where locks and shared
	// memory between processes do not hold what SQLite needs.
	ErrNetworkFS = errors.New("the store is on a network file system, which cannot keep it safe; use a local disk")
)

// classifyError gives an error of SQLite or of the file system a name above.
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
	case isOddValue(err):
		known = ErrCorrupt
	}
	if known == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", known, err)
}

// asCorrupt is an error of reading a row back, as damage; nil stays nil.
func asCorrupt(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// isOddValue reports whether a column held a value that this program never puts there.
// database/sql has no type for that.
func isOddValue(err error) bool { return strings.Contains(err.Error(), "sql: Scan error on column") }

// explainError classifies an error of a call, and names the file where that is what to look at.
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
		sqlite3.SQLITE_IOERR_CORRUPTFS: // EIO, where SQLite does not make a damaged page of it
		return ErrDiskRead
	}
	switch code & 0xff { // without what extended codes add
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

// isBusy reports whether another connection is in the way for now.
func isBusy(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && knownCode(se.Code()) == ErrBusy //nolint:errorlint // a constant of the table above
}
