//go:build !unix

package worktree

import (
	"io/fs"
	"os"
)

// readStamp says what a file is, and when it was modified: no system here tells of its change.
func readStamp(path string) (fs.FileMode, stamp, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, stamp{}, err
	}
	return info.Mode().Type(), stamp{size: info.Size(), modified: info.ModTime().UnixNano()}, nil
}

func openRegular(path string) (*os.File, error) { return os.Open(path) }
