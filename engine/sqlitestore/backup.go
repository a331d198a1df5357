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

	"github.com/gavel-mcp/gavel/engine/record"
)

// Errors of copies.
var (
	// ErrExists: there is a file where one was to be written.
	ErrExists = errors.New("there is a file of this name already; give another name")
	// ErrInUse: another process has the store open.
	ErrInUse = errors.New("another process has the store open; end it first")
)

// Copy writes a store as it is at one moment to another file, while others read and
// write it, and says what is in the copy. The copy gets its name only when it is whole,
// durable and has been inspected: a file of that name is a good one. It is one file,
// with the rights 0600; replace lets it take the place of another one.
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
		return Contents{}, fmt.Errorf("the copy is no good: %w", err)
	}
	return c, publishFile(part, to, replace)
}

// checkTarget refuses targets that cannot be meant.
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

// vacuumInto writes what one read transaction sees to a new file, and makes it durable.
func vacuumInto(ctx context.Context, from, to string) (err error) {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) // VACUUM INTO takes an empty file as it is
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
	// VACUUM INTO writes to the other file only, but query_only forbids that too.
	if _, err := src.db.ExecContext(ctx, "PRAGMA query_only = OFF"); err != nil {
		return err
	}
	if _, err := src.db.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return err
	}
	return syncFile(to)
}

// isStore keeps strange files from being copied for nothing.
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

// publishFile gives a finished file its name, durably. Without replace, a file that has
// appeared meanwhile is not written over.
func publishFile(part, to string, replace bool) error {
	if !replace {
		switch err := os.Link(part, to); {
		case err == nil:
			return record.SyncDir(filepath.Dir(to)) // part goes away with its caller
		case errors.Is(err, fs.ErrExist):
			return ErrExists
		}
		// This file system has no links. Somebody would have to be very quick.
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return ErrExists
		}
	}
	if err := os.Rename(part, to); err != nil {
		return err
	}
	return record.SyncDir(filepath.Dir(to))
}
