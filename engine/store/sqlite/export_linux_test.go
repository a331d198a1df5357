package sqlite

import (
	"testing"
)

// WriteLock parses a write lock from a line of /proc/locks.
func WriteLock(line string, inode uint64, first, last int64) (pid int, ok bool) {
	return writeLock(line, inode, first, last)
}

func TestNetworkFileSystemsAreKnown(t *testing.T) {
	for magic, want := range map[uint32]string{
		0x6969: "nfs", 0xff534d42: "smb", 0xfe534d42: "smb", 0x01021997: "9p", 0x00c36400: "ceph",
		0xef53: "", 0x9123683e: "", 0x58465342: "", 0x01021994: "", 0x794c7630: "", // ext4, btrfs, xfs, tmpfs, overlayfs
	} {
		if got := networkFSNames[magic]; got != want {
			t.Errorf("%#x is %q, want %q", magic, got, want)
		}
	}
	if name := networkFS(t.TempDir()); name != "" {
		t.Skipf("the tests themselves run on %s", name)
	}
}
