//go:build unix

package worktree

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// readStamp returns a file's type, with its executable bit, and its stamp.
func readStamp(path string) (fs.FileMode, stamp, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0, stamp{}, err
	}
	var kind fs.FileMode
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		kind = fs.FileMode(st.Mode) & 0o100
	case unix.S_IFLNK:
		kind = fs.ModeSymlink
	case unix.S_IFDIR:
		kind = fs.ModeDir
	default:
		kind = fs.ModeIrregular
	}
	return kind, stamp{
		device: uint64(st.Dev), inode: uint64(st.Ino), size: int64(st.Size), //nolint:unconvert // their types differ between systems
		modified: st.Mtim.Nano(), changed: st.Ctim.Nano(),
	}, nil
}

// openRegular opens a file. It neither blocks on a pipe nor follows a link that has replaced the file.
func openRegular(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0) //nolint:gosec // the path was listed by git or a walk
}
