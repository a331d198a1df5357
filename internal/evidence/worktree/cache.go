package worktree

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"
)

// stamp is what the system records whenever a file is written. Unlike the modification time, the change time cannot
// be set back.
type stamp struct {
	device, inode uint64
	size          int64
	modified      int64 // nanoseconds
	changed       int64 // nanoseconds; 0 if the system does not record it, so that the file is never cached
}

// Cache maps the stamps of files to the digests of their content. A nil Cache is empty and stays so. Only trusted
// writers may access the place where it is stored.
type Cache struct {
	known []file // by path

	mu      sync.Mutex // guards now
	updated []file     // nil if equal to known
	// minAge is the minimum age of a change before its stamp identifies the content. Writes within one clock tick
	// share a stamp. So do writes to mapped memory, until the system flushes them after half a minute.
	minAge time.Duration
}

func (c *Cache) find(f file) (sum [sha256.Size]byte, ok bool) {
	if c == nil {
		return sum, false
	}
	at, ok := slices.BinarySearchFunc(c.known, f.path, func(f file, path string) int { return strings.Compare(f.path, path) })
	if !ok {
		return sum, false
	}
	was := c.known[at]
	sum, was.sum = was.sum, f.sum
	return sum, was == f
}

// add stores the files of a Take that started at began, except those that changed shortly before it.
func (c *Cache) add(files []file, began time.Time) {
	if c == nil {
		return
	}
	settled := began.Add(-c.minAge).UnixNano()
	now := make([]file, 0, len(files))
	for _, f := range files {
		if f.kind.IsRegular() && f.stamp.changed != 0 && max(f.stamp.changed, f.stamp.modified) < settled {
			now = append(now, f)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(now, c.known) {
		c.updated = now
	}
}

const cacheVersion = 1

// Marshal encodes the cache. It returns nil if nothing was learned since UnmarshalCache.
func (c *Cache) Marshal() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.updated == nil {
		return nil
	}
	out := []byte{cacheVersion}
	for _, f := range c.updated {
		out = binary.AppendUvarint(out, uint64(len(f.path)))
		out = append(out, f.path...)
		out = binary.AppendUvarint(out, uint64(f.kind))
		out = binary.AppendUvarint(out, f.stamp.device)
		out = binary.AppendUvarint(out, f.stamp.inode)
		for _, n := range []int64{f.stamp.size, f.stamp.modified, f.stamp.changed} {
			out = binary.AppendVarint(out, n)
		}
		out = append(out, f.sum[:]...)
	}
	return out
}

// UnmarshalCache decodes the result of Marshal. Empty input yields an empty cache.
func UnmarshalCache(text []byte) (*Cache, error) {
	c := &Cache{minAge: time.Minute}
	if len(text) == 0 {
		return c, nil
	}
	r := reader{text: text[1:], failed: text[0] != cacheVersion}
	for len(r.text) > 0 && !r.failed {
		f := file{path: string(r.next(int(r.unsigned())))} //nolint:gosec // take checks the range
		f.kind = fs.FileMode(r.unsigned())                 //nolint:gosec // written by Marshal
		f.stamp = stamp{device: r.unsigned(), inode: r.unsigned(), size: r.signed(), modified: r.signed(), changed: r.signed()}
		copy(f.sum[:], r.next(sha256.Size))
		c.known = append(c.known, f)
	}
	if r.failed {
		return nil, errors.New("worktree: the cache is damaged")
	}
	return c, nil
}

// reader reads numbers and bytes from a text.
type reader struct {
	text   []byte
	failed bool
}

func (r *reader) next(n int) []byte {
	if n < 0 || n > len(r.text) {
		r.failed, r.text = true, nil
		return nil
	}
	out := r.text[:n]
	r.text = r.text[n:]
	return out
}

func (r *reader) unsigned() uint64 {
	v, n := binary.Uvarint(r.text)
	r.failed = r.failed || n <= 0
	r.next(n)
	return v
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.text)
	r.failed = r.failed || n <= 0
	r.next(n)
	return v
}
