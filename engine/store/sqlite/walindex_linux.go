package sqlite

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// walIndex is a read-only mapping of the index of the write-ahead log (the -shm file). It is made through SQLite's
// own descriptor: a separate descriptor could not be closed while SQLite has the file open, because closing it drops
// the locks of this process.
type walIndex struct {
	path   string // of the database
	mapped []byte
	head   *[2][12]uint32 // two equal copies, except during a write
}

// openWALIndex maps the index of a store that is open in this process. It returns nil if that is not possible.
func openWALIndex(path string) *walIndex {
	want, err := os.Stat(path + "-shm")
	if err != nil {
		return nil
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, entry := range open {
		name := "/proc/self/fd/" + entry.Name()
		if target, err := os.Readlink(name); err != nil || !strings.HasSuffix(target, "-shm") {
			continue
		}
		info, err := os.Stat(name)
		if err != nil || !os.SameFile(info, want) || info.Size() < int64(unsafe.Sizeof(*walIndex{}.head)) {
			continue
		}
		var fd int
		if _, err := fmt.Sscan(entry.Name(), &fd); err != nil {
			continue
		}
		mapped, err := syscall.Mmap(fd, 0, int(unsafe.Sizeof(*walIndex{}.head)), syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			return nil
		}
		return &walIndex{path: path, mapped: mapped, head: (*[2][12]uint32)(unsafe.Pointer(unsafe.SliceData(mapped)))} //nolint:gosec // the mapping is as long as the type, and at the start of a page
	}
	return nil
}

// close removes the mapping; it closes no descriptor.
func (w *walIndex) close() error {
	if w == nil {
		return nil
	}
	return syscall.Munmap(w.mapped)
}

// read returns the stamp of the newest commit; ok is false if it is being written. Writers write the second copy
// first, so that readers begin with the first.
func (w *walIndex) read() (s stamp, ok bool) {
	for i := range s.words {
		s.words[i] = atomic.LoadUint32(&w.head[0][i])
	}
	for i, word := range s.words {
		if atomic.LoadUint32(&w.head[1][i]) != word {
			return stamp{}, false
		}
	}
	if s.words[initWord] == 0 {
		return stamp{}, false
	}
	if s.words[saltWord] != 0 || s.words[saltWord+1] != 0 {
		return s, true
	}
	// If a process is killed while it writes the index of an empty log, SQLite recreates the index empty. It may then
	// look as it did before commits that are already in the database.
	info, err := os.Stat(w.path)
	if err != nil {
		return stamp{}, false
	}
	s.checkpointedAt = info.ModTime().UnixNano()
	return s, true
}
