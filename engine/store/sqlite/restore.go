package sqlite

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

// RestoreRequest asks to replace a store with a copy of another one.
type RestoreRequest struct {
	// From is a backup or any other store; To is the path to restore to.
	From, To string
	// Replace allows an existing store at To to be replaced. It is kept next to the new one, under another name.
	Replace bool
	// Now is used in the name of the replaced store.
	Now time.Time

	// before is called before each step that changes files at To; an error aborts the restore there.
	before func(step string) error
}

// Restored describes a completed restore.
type Restored struct {
	Contents
	// Kept lists the current names of the replaced store's files; nil if there was no store.
	Kept []string `json:"kept,omitempty"`
}

// Restore puts a copy of a store at a path. The copy is made and checked before anything at the path changes. The
// existing store gets a second name, and then a single rename switches over, so that one of the two stores is at the
// path at any moment. If that fails, the previous store is put back. (File systems without hard links do not support
// second names; there the path is briefly free.)
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

// lockStore makes sure that no other process has a store open or opens it before release is called. It checkpoints
// the write-ahead log if the store can be read.
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
	err = lockExclusive(ctx, db)
	switch {
	case isBusy(err), errors.Is(err, ErrInUse):
		return nil, errors.Join(ErrInUse, db.Close())
	case err == nil && runtime.GOOS != "windows": // Windows cannot rename an open file
		return db.Close, nil
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	// The store cannot be read, so it is moved as it is. Processes that have it open hold locks.
	if locked, err := isLockedElsewhere(path); err != nil || locked {
		return nil, errors.Join(ErrInUse, err)
	}
	return none, nil
}

// lockExclusive leaves WAL mode, which only the sole user of a store can do, and takes a lock that excludes all others.
func lockExclusive(ctx context.Context, db *sql.DB) error {
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
	case now != "delete": // another process opened it in between
		return ErrInUse
	}
	return nil
}

// exchangeFiles puts a finished store in place of the existing one, and returns the names under which the latter is
// kept.
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
			err = errors.Join(err, restoreNames(req.To, aside))
		}
	}()
	for _, suffix := range storeFiles {
		err := step("keep "+suffix, func() error { return linkAs(req.To+suffix, aside+suffix) })
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
	// SQLite would replay a remaining write-ahead log into the next file with that name. A log exists here only if
	// the store could not be read.
	for _, suffix := range storeFiles[1:] {
		err := step("clear "+suffix, func() error { return os.Remove(req.To + suffix) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return kept, step("rename", func() error { return os.Rename(part, req.To) })
}

// storeFiles are the name suffixes of a store's files; the store itself comes first.
var storeFiles = []string{"", "-wal", "-shm", "-journal"}

// linkAs gives a file a second name, or renames it if hard links are not supported.
func linkAs(path, aside string) error {
	err := os.Link(path, aside)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(path, aside)
}

// restoreNames gives kept files their original names again.
func restoreNames(path, aside string) error {
	var all error
	for _, suffix := range storeFiles {
		if _, err := os.Lstat(aside + suffix); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		// If both names refer to the same file, a rename does nothing.
		all = errors.Join(all, os.Rename(aside+suffix, path+suffix))
		if err := os.Remove(aside + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// unusedName returns an unused name for the replaced store.
func unusedName(path string, now time.Time) string {
	base := path + ".before-restore-" + now.UTC().Format("20060102T150405Z")
	aside := base
	for n := 2; storeExists(aside); n++ {
		aside = fmt.Sprintf("%s-%d", base, n)
	}
	return aside
}

// storeExists reports whether any file of a store with this name exists.
func storeExists(path string) bool {
	return slices.ContainsFunc(storeFiles, func(suffix string) bool {
		_, err := os.Lstat(path + suffix)
		return !errors.Is(err, fs.ErrNotExist)
	})
}
