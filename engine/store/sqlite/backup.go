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

	"github.com/gavel-mcp/gavel/engine/record"
)

// Errors of Copy and Restore.
var (
	// ErrExists is returned if the target file already exists.
	ErrExists = errors.New("a file of this name already exists; give another name")
	// ErrInUse is returned if another process has the store open.
	ErrInUse = errors.New("another process has the store open; stop it first")
)

// Copy writes a consistent copy of a store to another file, while other processes read and write it, and returns the
// copy's contents. The copy gets its final name only once it is complete, durable and inspected, so that a file with
// that name is always good. It is a single file with mode 0600. If replace is set, it replaces an existing file.
//
// Errors: ErrExists, ErrDiskFull, and those of Inspect.
func Copy(ctx context.Context, from, to string, replace bool) (Contents, error) {
	c, err := copyStore(ctx, from, to, replace)
	if err != nil {
		return Contents{}, fmt.Errorf("copy the store %s to %s: %w", from, to, classifyError(err))
	}
	return c, nil
}

func copyStore(ctx context.Context, from, to string, replace bool) (c Contents, err error) {
	if err := checkFiles(from); err != nil {
		return Contents{}, err
	}
	if err := checkTarget(from, to, replace); err != nil {
		return Contents{}, err
	}
	part := to + ".part-" + rand.Text()[:8]
	defer func() {
		if rmErr := os.Remove(part); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}()
	if err := vacuumInto(ctx, from, part); err != nil {
		return Contents{}, err
	}
	if c, err = inspectFile(ctx, part); err != nil {
		return Contents{}, fmt.Errorf("the copy is unusable: %w", err)
	}
	return c, publishFile(part, to, replace)
}

// checkTarget rejects targets that must not be overwritten.
func checkTarget(from, to string, replace bool) error {
	source, err := os.Stat(from)
	if err != nil {
		return err
	}
	target, err := os.Stat(to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case os.SameFile(source, target):
		return fmt.Errorf("%w (it is the store itself)", ErrExists)
	case !replace, !target.Mode().IsRegular():
		return ErrExists
	}
	return nil
}

// vacuumInto writes the state seen by a read transaction to a new file and makes it durable.
func vacuumInto(ctx context.Context, from, to string) (err error) {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) // VACUUM INTO accepts an existing file if it is empty
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	src, err := openSource(ctx, from, isStore)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	// VACUUM INTO writes only to the other file, but query_only would forbid it.
	if _, err := src.db.ExecContext(ctx, "PRAGMA query_only = OFF"); err != nil {
		return err
	}
	if _, err := src.db.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return err
	}
	return syncFile(to)
}

// isStore checks that a file is a store before it is copied.
func isStore(ctx context.Context, db *sql.DB) error {
	return checkIdentity(ctx, db, "main")
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// publishFile durably renames a finished file to its final name. Without replace, it does not overwrite a file that
// appeared in the meantime.
func publishFile(part, to string, replace bool) error {
	if !replace {
		switch err := os.Link(part, to); {
		case err == nil:
			return record.SyncDir(filepath.Dir(to)) // the caller removes part
		case errors.Is(err, fs.ErrExist):
			return ErrExists
		}
		// This file system has no hard links; the window in which another process can create the file is tiny.
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return ErrExists
		}
	}
	if err := os.Rename(part, to); err != nil {
		return err
	}
	return record.SyncDir(filepath.Dir(to))
}
