package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
)

// workshop is what the demo of evidence works with: a folder with a project, the
// program that runs its tests, and the operator's two files beside them.
type workshop struct{ dir string }

// The moods of the project. All but gone put the program in its place.
const (
	broken  mood = "broken"  // a test fails
	mended  mood = "mended"  // all pass
	hanging mood = "hanging" // a test does not end
	gone    mood = "gone"    // the program that runs the tests is not there
)

// shopFile is the project. What total should be is the tests' affair.
const shopFile = "shop.cfg"

var shops = map[mood]string{
	broken:  "price = 20\ndiscount = 2\ntotal = 20\n",
	mended:  "price = 20\ndiscount = 2\ntotal = 18\n",
	hanging: "price = 20\ndiscount = 2\ntotal = for ever\n",
}

// openWorkshop makes the folder.
func openWorkshop() (*workshop, error) {
	dir, err := os.MkdirTemp("", "gavel-demo-")
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot make a folder for the demo: %w", err)
	}
	w := &workshop{dir: dir}
	for _, folder := range []string{"project", "tools", "flows"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, folder), 0o700))
	}
	err = errors.Join(err, w.write("gavel.yaml", testedChangeSources), w.write("flows/tested-change.yaml", testedChange), w.become(broken))
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot prepare the demo: %w", errors.Join(err, w.close()))
	}
	return w, nil
}

func (w *workshop) settings() (arguments, environment []string) {
	return []string{"--config", filepath.Join(w.dir, "gavel.yaml"), "--definitions", filepath.Join(w.dir, "flows")}, nil
}

func (w *workshop) close() error { return os.RemoveAll(w.dir) }

func (w *workshop) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(w.dir, filepath.FromSlash(name)), content, 0o600)
}

func (w *workshop) become(to mood) error {
	tool := filepath.Join(w.dir, "tools", "gavel")
	if runtime.GOOS == "windows" {
		tool += ".exe"
	}
	if to == gone {
		return os.Remove(tool)
	}
	if err := placeProgram(tool); err != nil {
		return fmt.Errorf("put the program that runs the tests in its place: %w", err)
	}
	return w.write("project/"+shopFile, []byte(shops[to]))
}

// placeProgram makes this very program available under another path, unless it is.
func placeProgram(path string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	err = os.Symlink(program, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return copyFile(program, path) // where links need a right of their own
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700) //nolint:gosec // a program, and ours to run
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
