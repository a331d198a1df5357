//go:build !linux

package sqlite

import (
	"io/fs"
	"os"
)

// fileID identifies the file to which a name refers.
type fileID struct{ info fs.FileInfo }

func identifyFile(name string) (fileID, error) {
	info, err := os.Stat(name)
	return fileID{info}, err
}

func idOf(info fs.FileInfo) (fileID, error) { return fileID{info}, nil }

func (f fileID) isSame(other fileID) bool { return os.SameFile(f.info, other.info) }

// lockHolder returns "", because the holder is unknown here.
func lockHolder(string) string { return "" }

// networkFS returns "", because the file system is unknown here; the operator must check it.
func networkFS(string) string { return "" }
