package gavel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// MaxDefinition is the maximum size of a definition file, in bytes.
const MaxDefinition = 256 << 10

// define registers a file's definition as the operator's.
func (s *System) define(ctx context.Context, file string) error {
	req, err := ReadDefinition(file)
	if err != nil {
		return err
	}
	r, err := s.Engine.Define(ctx, Operator, req)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, w := range r.Warnings {
		s.cfg.Logger.Warn("definition", "file", file, "issue", w.String())
	}
	return nil
}

// ReadDefinition reads a definition file. The files that it references are read during parsing.
func ReadDefinition(path string) (req engine.DefineRequest, err error) {
	info, err := os.Stat(path) //nolint:gosec // the user names the file
	if err != nil {
		return req, fmt.Errorf("cannot read the definition: %w", err)
	}
	if info.Size() > MaxDefinition {
		return req, &engine.Error{Code: engine.CodeTooLarge, Message: fmt.Sprintf("%s has %d bytes; a definition has at most %d", path, info.Size(), MaxDefinition)}
	}
	req = engine.DefineRequest{Source: path, Files: FilesBelow(filepath.Dir(path))}
	if req.Document, err = os.ReadFile(path); err != nil { //nolint:gosec // as above
		return req, fmt.Errorf("cannot read the definition: %w", err)
	}
	return req, nil
}

// FilesBelow returns a reader of the files that a definition in dir references. Names and links cannot lead out of
// dir.
func FilesBelow(dir string) workflow.Files {
	return func(name string) ([]byte, error) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		info, err := root.Stat(name)
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			if _, system := errors.AsType[syscall.Errno](path.Err); !system { // from os.Root: names with ".." are rejected earlier
				return nil, errors.New("a link leads outside the definition's folder")
			}
			return nil, path.Err // the message already has the name
		}
		switch {
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular(): // a pipe would block the reader
			return nil, errors.New("it is not a regular file")
		case info.Size() > MaxDefinition:
			return nil, fmt.Errorf("it has %d bytes, more than the limit for a definition", info.Size())
		}
		return root.ReadFile(name)
	}
}
