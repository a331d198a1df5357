package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileID identifies the file to which a name refers.
type fileID struct {
	major, minor uint32
	inode        uint64
}

// identifyFile requests only the identity of a file. If its times are requested, Linux gives the file a new timestamp
// with the next write and must journal it with the next sync. Requesting them before each commit makes the sync of
// the log a third slower.
func identifyFile(name string) (fileID, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_INO, &st)
	switch {
	case err == nil:
		return fileID{st.Dev_major, st.Dev_minor, st.Ino}, nil
	case !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM): // a sandbox may allow only stat
		return fileID{}, &fs.PathError{Op: "statx", Path: name, Err: err}
	}
	info, err := os.Stat(name)
	if err != nil {
		return fileID{}, err
	}
	return idOf(info)
}

func idOf(info fs.FileInfo) (fileID, error) {
	old, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, &fs.PathError{Op: "stat", Path: info.Name(), Err: errors.ErrUnsupported}
	}
	dev := uint64(old.Dev) //nolint:unconvert // 32 bits on some architectures
	return fileID{unix.Major(dev), unix.Minor(dev), old.Ino}, nil
}

func (f fileID) isSame(other fileID) bool { return f == other }

// writeLockByte is the byte of the -shm file that a writer locks.
const writeLockByte = 120

// lockHolder names the process that keeps others from writing to a store, for an error message; "" if it is unknown.
// It opens none of the store's files, because closing one would drop the locks of this process.
func lockHolder(path string) string {
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	self := os.Getpid()
	for _, file := range []struct {
		path        string
		first, last int64
	}{
		{path + "-shm", writeLockByte, writeLockByte},
		{path, lockedFrom, lockedFrom + 1}, // pending and reserved bytes, which readers in WAL mode do not lock
	} {
		info, err := os.Stat(file.path)
		if err != nil {
			continue
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			continue
		}
		for line := range strings.Lines(string(locks)) {
			pid, ok := writeLock(line, stat.Ino, file.first, file.last)
			if !ok || pid == self {
				continue
			}
			if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
				return fmt.Sprintf(", held by process %d (%s)", pid, bytes.TrimSpace(name))
			}
			return fmt.Sprintf(", held by process %d", pid)
		}
	}
	return ""
}

// writeLock returns the process that holds a write lock on a byte range of a file, according to a line of /proc/locks
// such as "1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 120 120".
func writeLock(line string, inode uint64, first, last int64) (pid int, ok bool) {
	f := strings.Fields(line)
	if len(f) != 8 || f[3] != "WRITE" || !strings.HasSuffix(f[5], ":"+strconv.FormatUint(inode, 10)) {
		return 0, false
	}
	pid, err := strconv.Atoi(f[4])
	from, fromErr := strconv.ParseInt(f[6], 10, 64)
	to, toErr := strconv.ParseInt(f[7], 10, 64)
	if f[7] == "EOF" {
		to, toErr = last, nil
	}
	if err != nil || fromErr != nil || toErr != nil || pid <= 0 || from > last || to < first {
		return 0, false
	}
	return pid, true
}

// networkFS names the network file system of a directory; "" if it is local or unknown.
func networkFS(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return ""
	}
	return networkFSNames[uint32(st.Type)] //nolint:gosec // magic numbers have 32 bits; the type of the field varies
}

// networkFSNames maps magic numbers of statfs(2) to names.
var networkFSNames = map[uint32]string{
	0x6969: "nfs", 0x517b: "smb", 0xfe534d42: "smb", 0xff534d42: "smb", 0x01021997: "9p", 0x5346414f: "afs", 0x6b414653: "afs",
	0x00c36400: "ceph", 0x0bd00bd0: "lustre", 0x73757245: "coda", 0x564c: "ncp", 0x47504653: "gpfs", 0x19830326: "beegfs", 0x786f4256: "vboxsf",
}
