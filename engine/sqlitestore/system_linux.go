package sqlitestore

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// The byte of the -shm file that a writer locks.
const writeLockByte = 120

// lockHolder names the process that keeps others from writing to a store, as far as the
// system tells; "" when it does not. It opens none of the store's files: to close one would
// drop the locks of this process.
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
		{path, lockedFrom, lockedFrom + 1}, // pending and reserved: not in the mode that readers use
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

// writeLock reports who holds a write lock on a byte in a range of a file, by a line of
// /proc/locks such as "1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 120 120".
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

// networkFS names the network file system that a directory is on, "" for a
// local one or one that cannot be told.
func networkFS(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return ""
	}
	return networkFSNames[uint32(st.Type)] //nolint:gosec // magic numbers have 32 bits; the type of the field varies
}

// networkFSNames are by the magic numbers of statfs(2).
var networkFSNames = map[uint32]string{
	0x6969: "nfs", 0x517b: "smb", 0xfe534d42: "smb", 0xff534d42: "smb", 0x01021997: "9p", 0x5346414f: "afs", 0x6b414653: "afs",
	0x00c36400: "ceph", 0x0bd00bd0: "lustre", 0x73757245: "coda", 0x564c: "ncp", 0x47504653: "gpfs", 0x19830326: "beegfs", 0x786f4256: "vboxsf",
}
