//go:build !unix

package worktree

import (
	"io/fs"
	"os"
)

// readStamp returns a file's type and modification time. The systems here do not record a change time.
func readStamp(path string) (fs.FileMode, stamp, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, stamp{}, err
	}
	return info.Mode().Type(), stamp{size: info.Size(), modified: info.ModTime().UnixNano()}, nil
}

func openRegular(path string) (*os.File, error) { return os.Open(path) }
