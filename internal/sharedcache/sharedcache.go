// Package sharedcache keeps what can be made again, within a number of bytes that
// its owners share.
//
// It promises that no owner's entries weigh more than its part, and that an owner
// with few of them keeps them whatever others put in: what goes first, when all is
// full, is the least recently used entry of the owner with the most bytes. It knows
// nothing of what it keeps, and imports nothing of this module.
package sharedcache

import (
	"math"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache keeps values by key. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	most, mostEach int

	mu     sync.Mutex
	bytes  int
	owners map[string]*share[K, V]
	byKey  map[K]*share[K, V]
}

// share is what one owner has in the cache.
type share[K comparable, V any] struct {
	owner string
	bytes int
	used  *simplelru.LRU[K, entry[V]]
}

type entry[V any] struct {
	value V
	bytes int
}

// New makes a Cache of so many bytes, of which one owner has at most mostEach.
func New[K comparable, V any](most, mostEach int) *Cache[K, V] {
	return &Cache[K, V]{most: most, mostEach: min(most, mostEach), owners: map[string]*share[K, V]{}, byKey: map[K]*share[K, V]{}}
}

// Get returns what was put under a key, unless it had to go.
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

// Put keeps a value of so many bytes, in place of any other under its key. What is
// larger than an owner's part is not kept.
func (c *Cache[K, V]) Put(key K, owner string, bytes int, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.byKey[key]; s != nil {
		s.used.Remove(key)
	}
	if bytes > c.mostEach {
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
	for s.bytes > c.mostEach {
		s.used.RemoveOldest()
	}
	for c.bytes > c.most {
		c.largest().used.RemoveOldest()
	}
}

// Bytes is what all entries weigh together.
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
