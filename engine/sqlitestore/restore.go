package sqlitestore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// RestoreRequest asks for a store to be put in place of another one.
type RestoreRequest struct {
	// From is a backup, or any other store; To is where it shall be.
	From, To string
	// Replace lets a store that is there give way. It is kept beside, under another name.
	Replace bool
	// Now names what is kept.
	Now time.Time
}

// Restored says what was restored.
type Restored struct {
	Contents
	// Kept are the files of the store that was there, under the names that they have
	// now; nil when there was none.
	Kept []string `json:"kept,omitempty"`
}

// Restore puts a copy of a store at a path. Everything that can go wrong with the copy
// goes wrong before what is there is touched; then one rename makes the difference.
//
// Errors: ErrExists without Replace, ErrInUse, and those of Copy.
func Restore(ctx context.Context, req RestoreRequest) (Restored, error) {
	r, err := restore(ctx, req)
	if err != nil {
		return Restored{}, fmt.Errorf("restore %s from %s: %w", req.To, req.From, classify(err))
	}
	return r, nil
}

func restore(ctx context.Context, req RestoreRequest) (out Restored, err error) {
	if err := free(req.From, req.To, req.Replace); err != nil {
		return Restored{}, err
	}
	dir := filepath.Dir(req.To)
	if name := networkFS(dir); name != "" {
		return Restored{}, fmt.Errorf("%w (%s)", ErrNetworkFS, name)
	}
	part := req.To + ".part-" + rand.Text()[:8]
	if out.Contents, err = copyStore(ctx, req.From, part, false); err != nil {
		return Restored{}, err
	}
	defer func() {
		if rmErr := os.Remove(part); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}()
	release, err := seize(ctx, req.To)
	if err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if out.Kept, err = setAside(req.To, req.Now); err != nil {
		return Restored{}, err
	}
	if err := os.Rename(part, req.To); err != nil {
		return Restored{}, err
	}
	return out, syncDir(dir)
}

// seize makes sure that nobody else has a store open, and that nobody opens it until
// release is called. Its write-ahead log is folded into it, where it can be read.
func seize(ctx context.Context, path string) (release func() error, err error) {
	none := func() error { return nil }
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return none, nil
	case err != nil:
		return nil, err
	case info.Size() == 0:
		return none, nil
	}
	db, err := sql.Open(driverName, dsn(path, "busy_timeout(500)"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	err = lockWhole(ctx, db)
	switch {
	case isBusy(err), errors.Is(err, ErrInUse):
		return nil, errors.Join(ErrInUse, db.Close())
	case err == nil && runtime.GOOS != "windows": // where an open file cannot be renamed
		return db.Close, nil
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	// It cannot be read: then it is moved as it is. Whoever has it open holds locks.
	if locked, err := lockedElsewhere(path); err != nil || locked {
		return nil, errors.Join(ErrInUse, err)
	}
	return none, nil
}

// lockWhole leaves the write-ahead log, which only one who is alone can, and takes the
// lock that then keeps everybody else out.
func lockWhole(ctx context.Context, db *sql.DB) error {
	mode := func(query string) (mode string, err error) {
		err = db.QueryRowContext(ctx, query).Scan(&mode)
		return mode, err
	}
	if _, err := mode("PRAGMA journal_mode = DELETE"); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		return err
	}
	switch now, err := mode("PRAGMA journal_mode"); {
	case err != nil:
		return err
	case now != "delete": // somebody has opened it between the two
		return ErrInUse
	}
	return nil
}

// setAside renames the files of a store, and what is left of one: a write-ahead log
// without its file would be played into the next file of that name.
func setAside(path string, now time.Time) (kept []string, err error) {
	base := path + ".before-restore-" + now.UTC().Format("20060102T150405Z")
	aside := base
	for n := 2; anyOf(aside); n++ {
		aside = fmt.Sprintf("%s-%d", base, n)
	}
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		switch err := os.Rename(path+suffix, aside+suffix); {
		case err == nil:
			kept = append(kept, aside+suffix)
		case !errors.Is(err, fs.ErrNotExist):
			return kept, err
		}
	}
	return kept, nil
}

// anyOf reports whether a store of this name, or a part of one, is there.
func anyOf(path string) bool {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if _, err := os.Lstat(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}
