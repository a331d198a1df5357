package sqlitestore

// WriteLock is what a line of /proc/locks says of a write lock.
func WriteLock(line string, inode uint64, first, last int64) (pid int, ok bool) {
	return writeLock(line, inode, first, last)
}
