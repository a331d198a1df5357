package storetest

import (
	"os"

	"golang.org/x/sys/unix"
)

// memoryDir returns a folder in memory from which programs may be run, with space for all concurrent tests; "" if
// there is none.
func memoryDir() string {
	const dir, room = "/dev/shm", 1 << 30
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Flags&unix.ST_NOEXEC != 0 ||
		fs.Bavail*uint64(fs.Bsize) < room { //nolint:gosec // a size
		return ""
	}
	probe, err := os.MkdirTemp(dir, "gavel-test-")
	if err != nil {
		return ""
	}
	_ = os.Remove(probe)
	return dir
}
