package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrUnreadLog is returned if the files cannot be opened in place and the log next to the database holds writes that
// would be missing.
var ErrUnreadLog = errors.New("the write-ahead log could not be read; copy the database and its -wal file to a writable folder")

// source is a store that is opened read-only. close also removes what reading created: a temporary copy, or the empty
// log that SQLite needs.
type source struct {
	db    *sql.DB
	path  string // of the file that is read: the store or a copy
	close func() error
}

// openSource opens a store for reading and runs check on it. If SQLite cannot create its -shm file, as on read-only
// media, openSource reads the file in place if its log is empty, and otherwise a temporary copy of both.
func openSource(ctx context.Context, path string, check func(context.Context, *sql.DB) error) (*source, error) {
	if err := checkFiles(path); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w (not a regular file)", ErrNotAStore)
	case info.Size() < minSize:
		return nil, fmt.Errorf("%w (%d bytes)", ErrNotAStore, info.Size())
	}
	_, logErr := os.Lstat(path + "-wal")
	src, err := trySource(ctx, path, "", check)
	switch {
	case err == nil:
		if errors.Is(logErr, fs.ErrNotExist) {
			src.close = func() error { err := src.db.Close(); removeEmptyLog(path); return err }
		}
		return src, nil
	case !cannotShare(err):
		return nil, err
	case fileSize(path+"-wal") == 0:
		return trySource(ctx, path, "&immutable=1", check)
	}
	copied, remove, copyErr := copyToTemp(path)
	if copyErr != nil {
		return nil, fmt.Errorf("%w (%s-wal: %w)", ErrUnreadLog, path, errors.Join(err, copyErr))
	}
	if src, err = trySource(ctx, copied, "", check); err != nil {
		return nil, errors.Join(err, remove())
	}
	src.close = func() error { return errors.Join(src.db.Close(), remove()) }
	return src, nil
}

func trySource(ctx context.Context, path, option string, check func(context.Context, *sql.DB) error) (*source, error) {
	db, err := sql.Open(driverName, dataSourceName(path, "busy_timeout(10000)", "query_only(ON)", "cache_size(-8000)", "temp_store(memory)", "trusted_schema(OFF)")+"&mode=ro"+option)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if err := errors.Join(check(ctx, db), ctx.Err()); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &source{db: db, path: path, close: db.Close}, nil
}

// cannotShare reports whether SQLite could not create or open the files that readers and writers share.
func cannotShare(err error) bool {
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return false
	}
	code := se.Code() & 0xff
	return code == sqlite3.SQLITE_CANTOPEN || code == sqlite3.SQLITE_READONLY
}

// removeEmptyLog makes SQLite delete the log that it created to read a store without one; the last connection that
// may write does so on closing. If another process has the store open, nothing changes. Failure is harmless: an empty
// log carries no information.
func removeEmptyLog(path string) {
	if checkFiles(path) != nil || fileSize(path+"-wal") > 0 {
		return
	}
	db, err := sql.Open(driverName, dataSourceName(path, "wal_autocheckpoint(0)")+"&mode=rw")
	if err != nil {
		return
	}
	var objects int
	_ = db.QueryRowContext(context.Background(), "SELECT count(*) FROM sqlite_schema").Scan(&objects)
	_ = db.Close()
}

// copyToTemp copies a database and its log to a temporary folder. It returns an error if they change during the copy,
// because the two would be inconsistent.
func copyToTemp(path string) (copied string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "gavel-read-*")
	if err != nil {
		return "", nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	copied = filepath.Join(dir, "store.db")
	if err := copyUnchanged(path, copied); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return copied, remove, nil
}

func copyUnchanged(path, to string) error {
	before := map[string]fs.FileInfo{}
	for _, suffix := range []string{"", "-wal"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			return err
		}
		before[path+suffix] = info
	}
	if err := copyBoth(path, to); err != nil {
		return err
	}
	for name, was := range before {
		now, err := os.Stat(name)
		if err != nil {
			return err
		}
		if now.Size() != was.Size() || !now.ModTime().Equal(was.ModTime()) {
			return fmt.Errorf("%s is being written", name)
		}
	}
	return nil
}

func copyBoth(from, to string) error {
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(from+suffix, to+suffix); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
