//go:build !linux

package sqlitestore_test

import (
	"io"
	"os"

	"github.com/gavel-mcp/gavel/engine/sqlitestore"
)

// isolatedChild returns false, because its roles need Linux.
func isolatedChild(string, sqlitestore.Config, io.Writer) bool { return false }

func fdatasync(f *os.File) error { return f.Sync() }
