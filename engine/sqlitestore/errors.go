package sqlitestore

import (
	"errors"
	"fmt"
	"io/fs"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Errors of this driver beside those of engine.Store. Their texts say what to do.
var (
	// ErrBusy: another process held the write lock longer than Config.BusyTimeout.
	ErrBusy = errors.New("another process keeps the store locked; try again, or end that process")
	// ErrDiskFull: nothing more can be written; what was acknowledged is safe.
	ErrDiskFull = errors.New("the disk is full; free some space and try again")
	// ErrReadOnly: the file or its directory cannot be written by this user.
	ErrReadOnly = errors.New("the store cannot be written; mind the owner and mode of the file and its directory")
	// ErrNotAStore: the file is something else.
	ErrNotAStore = errors.New("this file is not a gavel store; give another path")
	// ErrCorrupt: the file is damaged.
	ErrCorrupt = errors.New("the store is damaged; restore a backup")
	// ErrNetworkFS: the file is on a network file system, where locks and shared
	// memory between processes do not hold what SQLite needs.
	ErrNetworkFS = errors.New("the store is on a network file system, which cannot keep it safe; use a local disk")
)

// classify gives an error of SQLite or of the file system a name above.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var known error
	var se *sqlite.Error
	switch {
	case errors.As(err, &se):
		known = knownCode(se.Code())
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		known = ErrReadOnly
	case isNoSpace(err):
		known = ErrDiskFull
	}
	if known == nil {
		return err
	}
	return fmt.Errorf("%w (%w)", known, err)
}

func knownCode(code int) error {
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
	}
	return nil
}

// isBusy reports whether another connection is in the way for now.
func isBusy(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && knownCode(se.Code()) == ErrBusy //nolint:errorlint // a constant of the table above
}
