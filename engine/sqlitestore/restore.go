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
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
)

// RestoreRequest asks for a store to be put in place of another one.
type RestoreRequest struct {
	// From is a backup, or any other store; To is where it shall be.
	From, To string
	// Replace lets a store that is there give way. It is kept beside, under another name.
	Replace bool
	// Now names what is kept.
	Now time.Time

	// before is asked before each step that changes what is at To; an error ends it there.
	before func(step string) error
}

// Restored says what was restored.
type Restored struct {
	Contents
	// Kept are the files of the store that was there, under the names that they have
	// now; nil when there was none.
	Kept []string `json:"kept,omitempty"`
}

// Restore puts a copy of a store at a path. Everything that can go wrong with the copy
// goes wrong before what is there is touched. What is there gets a second name, and then
// one rename makes the difference: at any moment one of the two stores is at the path.
// Where that fails, the one that was there is there again. (A file system without hard
// links knows no second names: there the path is free for a moment.)
//
// Errors: ErrExists without Replace, ErrInUse, and those of Copy.
func Restore(ctx context.Context, req RestoreRequest) (Restored, error) {
	r, err := restoreFile(ctx, req)
	if err != nil {
		return Restored{}, fmt.Errorf("restore %s from %s: %w", req.To, req.From, classifyError(err))
	}
	return r, nil
}

func restoreFile(ctx context.Context, req RestoreRequest) (out Restored, err error) {
	if err := checkTarget(req.From, req.To, req.Replace); err != nil {
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
	release, err := lockStore(ctx, req.To)
	if err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, release()) }()
	out.Kept, err = exchangeFiles(part, req)
	if err != nil {
		return Restored{}, err
	}
	return out, record.SyncDir(dir)
}

// lockStore makes sure that nobody else has a store open, and that nobody opens it until
// release is called. Its write-ahead log is folded into it, where it can be read.
func lockStore(ctx context.Context, path string) (release func() error, err error) {
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
	db, err := sql.Open(driverName, dataSourceName(path, "busy_timeout(500)"))
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

// exchangeFiles puts a finished store in place of what is there, and returns the names under
// which that is kept.
func exchangeFiles(part string, req RestoreRequest) (kept []string, err error) {
	step := func(name string, do func() error) error {
		if req.before != nil {
			if err := req.before(name); err != nil {
				return err
			}
		}
		return do()
	}
	aside := unusedName(req.To, req.Now)
	defer func() {
		if err != nil {
			err = errors.Join(err, putBack(req.To, aside))
		}
	}()
	for _, suffix := range storeFiles {
		err := step("keep "+suffix, func() error { return keepAs(req.To+suffix, aside+suffix) })
		switch {
		case err == nil:
			kept = append(kept, aside+suffix)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	if err := step("sync", func() error { return record.SyncDir(filepath.Dir(req.To)) }); err != nil {
		return nil, err
	}
	// A write-ahead log would be played into the next file of that name. There is one only
	// where the file could not be read.
	for _, suffix := range storeFiles[1:] {
		err := step("clear "+suffix, func() error { return os.Remove(req.To + suffix) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return kept, step("rename", func() error { return os.Rename(part, req.To) })
}

// storeFiles are what the names of a store's files end in; the store itself comes first.
var storeFiles = []string{"", "-wal", "-shm", "-journal"}

// keepAs gives a file a second name, or another one where a file can have but one.
func keepAs(path, aside string) error {
	err := os.Link(path, aside)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(path, aside)
}

// putBack gives what was kept the names again that it had.
func putBack(path, aside string) error {
	var all error
	for _, suffix := range storeFiles {
		if _, err := os.Lstat(aside + suffix); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		// Where both names are the same file, a rename does nothing.
		all = errors.Join(all, os.Rename(aside+suffix, path+suffix))
		if err := os.Remove(aside + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// unusedName is a name for what is kept.
func unusedName(path string, now time.Time) string {
	base := path + ".before-restore-" + now.UTC().Format("20060102T150405Z")
	aside := base
	for n := 2; anyOf(aside); n++ {
		aside = fmt.Sprintf("%s-%d", base, n)
	}
	return aside
}

// anyOf reports whether a store of this name, or a part of one, is there.
func anyOf(path string) bool {
	return slices.ContainsFunc(storeFiles, func(suffix string) bool {
		_, err := os.Lstat(path + suffix)
		return !errors.Is(err, fs.ErrNotExist)
	})
}
