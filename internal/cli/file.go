package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

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

// ReplaceFile writes a text into a file that belongs to another program, or into the file that it links to. It keeps
// the file's mode. It fails if the file no longer has the text before; an empty text after removes the file.
func ReplaceFile(path string, before, after []byte) error {
	if now, _ := os.ReadFile(path); !bytes.Equal(now, before) { //nolint:gosec // the settings of the user's own client
		return term.UsageErrorf("run it again", "nothing was written: %s has changed in the meantime", path)
	}
	if len(after) == 0 {
		return os.Remove(path)
	}
	mode := fs.FileMode(0o600)
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // the usual mode of a project's folders
	if err == nil {
		err = WriteFileAtomically(path, func(w io.Writer) error { _, err := w.Write(after); return err })
	}
	if err == nil {
		err = os.Chmod(path, mode)
	}
	return err
}

// ShowDiff returns the change of a file as a unified diff.
func ShowDiff(path string, before, after []byte) string {
	_, text, _ := strings.Cut(string(diff.Diff(path, before, path+" (new)", after)), "\n") // without the line that repeats the diff command
	return text
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

// FindProgram returns the path of this program. It prefers the path by which it was called, because that may be a link
// that stays valid when the program is updated.
func FindProgram() (string, error) {
	if called, err := exec.LookPath(os.Args[0]); err == nil {
		return filepath.Abs(called)
	}
	return os.Executable()
}
