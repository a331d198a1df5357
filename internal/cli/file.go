package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/term"
)

// WriteFileAtomically writes a file atomically: it appears with all of its content, synced to disk, or not at all.
func WriteFileAtomically(path string, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".gavel-export-*") // 0600
	if err != nil {
		return term.UsageErrorf("choose a place that you can write to", "cannot write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // report the first error
		}
	}()
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return term.UnknownErrorf("free some space, or choose another place", "cannot write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return term.UsageErrorf("choose a place that you can write to", "cannot write %s: %w", path, err)
	}
	if err := record.SyncDir(dir); err != nil {
		return fmt.Errorf("sync the folder of %s: %w", path, err)
	}
	return nil
}

// LocateFile returns the absolute path of a file, which need not exist.
func LocateFile(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", term.UnknownErrorf("", "cannot find the absolute path: %w", err)
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path, nil
}
