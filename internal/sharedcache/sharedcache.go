// Package sharedcache caches values that can be recomputed, within a limit in bytes that its owners share.
//
// It promises:
//
//   - No owner's entries exceed the limit for a single owner.
//   - When the cache is full, it evicts the least recently used entry of the owner with the most bytes. So an owner with
//     few bytes keeps them, whatever others add.
//
// It does not interpret its values, and imports no other package of this module.
package sharedcache

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache holds values by key. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	maxBytes, maxBytesEach int

	mu     sync.Mutex
	bytes  int
	owners map[string]*share[K, V]
	byKey  map[K]*share[K, V]
}

// share holds a single owner's entries.
type share[K comparable, V any] struct {
	owner string
	bytes int
	used  *simplelru.LRU[K, entry[V]]
}

type entry[V any] struct {
	value V
	bytes int
}

// New returns a Cache with a limit of most bytes in total and maxBytesEach bytes for each owner.
func New[K comparable, V any](most, mostEach int) *Cache[K, V] {
	return &Cache[K, V]{maxBytes: most, maxBytesEach: min(most, mostEach), owners: map[string]*share[K, V]{}, byKey: map[K]*share[K, V]{}}
}

// Get returns the value of a key; ok is false if it was never put or was evicted.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byKey[key]
	if s == nil {
		return value, false
	}
	e, ok := s.used.Get(key)
	return e.value, ok
}

// Put stores a value under a key and replaces the previous one; bytes is its size. A value larger than one
// owner's limit is not stored, but the previous value of the key is still removed.
func (c *Cache[K, V]) Put(key K, owner string, bytes int, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byKey[key]; s != nil {
		s.used.Remove(key)
	}
	if bytes > c.maxBytesEach {
		return
	}
	s := c.owners[owner]
	if s == nil {
		s = c.newShare(owner)
	}
	c.byKey[key] = s
	s.bytes += bytes
	c.bytes += bytes
	s.used.Add(key, entry[V]{value, bytes})
	for s.bytes > c.maxBytesEach {
		s.used.RemoveOldest()
	}
	for c.bytes > c.maxBytes {
		c.largest().used.RemoveOldest()
	}
}

// Bytes returns the size of all entries.
func (c *Cache[K, V]) Bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *Cache[K, V]) newShare(owner string) *share[K, V] {
	s := &share[K, V]{owner: owner}
	removed := func(key K, e entry[V]) {
		delete(c.byKey, key)
		s.bytes -= e.bytes
		c.bytes -= e.bytes
		if s.used.Len() == 0 {
			delete(c.owners, owner)
		}
	}
	s.used, _ = simplelru.NewLRU(math.MaxInt, removed) // the error is for a size below 1
	c.owners[owner] = s
	return s
}

func (c *Cache[K, V]) largest() *share[K, V] {
	var most *share[K, V]
	for _, s := range c.owners {
		if most == nil || s.bytes > most.bytes {
			most = s
		}
	}
	return most
}
