package sqlitestore

import "syscall"

// networkFS names the network file system that a directory is on, "" for a
// local one or one that cannot be told.
func networkFS(dir string) string {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return ""
	}
	return networkFSName(uint32(st.Type)) //nolint:gosec // magic numbers have 32 bits; the type of the field varies
}

// networkFSName knows the magic numbers of statfs(2).
func networkFSName(magic uint32) string {
	switch magic {
	case 0x6969:
		return "nfs"
	case 0x517b, 0xfe534d42, 0xff534d42:
		return "smb"
	case 0x01021997:
		return "9p"
	case 0x5346414f, 0x6b414653:
		return "afs"
	case 0x00c36400:
		return "ceph"
	case 0x0bd00bd0:
		return "lustre"
	case 0x73757245:
		return "coda"
	case 0x564c:
		return "ncp"
	case 0x47504653:
		return "gpfs"
	case 0x19830326:
		return "beegfs"
	case 0x786f4256:
		return "vboxsf"
	}
	return ""
}
