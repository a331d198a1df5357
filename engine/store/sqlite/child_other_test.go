//go:build !linux

package sqlite_test

import (
	"io"
	"os"

	"github.com/gavel-mcp/gavel/engine/store/sqlite"
)

// isolatedChild returns false, because its roles need Linux.
func isolatedChild(string, sqlite.Config, io.Writer) bool { return false }

func fdatasync(f *os.File) error { return f.Sync() }
