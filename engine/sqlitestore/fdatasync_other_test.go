//go:build !linux

package sqlitestore_test

import "os"

func fdatasync(f *os.File) error { return f.Sync() }
