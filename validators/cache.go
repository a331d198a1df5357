package validators

import (
	"bytes"
	"container/list"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/gavel-mcp/gavel/validators/script"
)

// cache keeps compiled checks, least recently used out. Layers compile on every
// decision, so a hit must cost little: the key is a fast hash, and what it finds
// is compared with what was asked for.
type cache struct {
	seed maphash.Seed
	max  int

	mu    *sync.Mutex
	order *list.List // of *entry, newest use first
	byKey map[uint64]*list.Element
}

type entry struct {
	key      uint64
	owner    Owner
	checks   Checks
	set      *Set
	problems []Problem
}

func newCache(n int) cache {
	return cache{seed: maphash.MakeSeed(), max: n, mu: new(sync.Mutex), order: list.New(), byKey: map[uint64]*list.Element{}}
}

// key hashes everything that the compiled form depends on.
func (c *cache) key(owner Owner, checks Checks) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	// Lengths need not be told apart here: get compares.
	_, _ = h.WriteString(owner.ID)
	if owner.Trusted {
		_ = h.WriteByte(1)
	}
	for _, f := range checks.RequiredFields {
		_, _ = h.WriteString(f)
		_ = h.WriteByte(0)
	}
	_, _ = h.Write(checks.Schema)
	for _, group := range [...][]script.Script{checks.Validators, checks.Routes} {
		_ = h.WriteByte(0)
		for _, s := range group {
			_, _ = h.WriteString(s.Name)
			_, _ = h.WriteString(s.Source)
		}
	}
	return h.Sum64()
}

func (c *cache) get(key uint64, owner Owner, checks Checks) (*Set, []Problem, bool) {
	c.mu.Lock()
	el, ok := c.byKey[key]
	if ok {
		c.order.MoveToFront(el)
	}
	c.mu.Unlock()
	if !ok {
		return nil, nil, false
	}
	e := el.Value.(*entry) // never changed once it is in
	if e.owner != owner || !sameChecks(e.checks, checks) {
		return nil, nil, false
	}
	return e.set, slices.Clone(e.problems), true
}

func sameChecks(a, b Checks) bool {
	return slices.Equal(a.RequiredFields, b.RequiredFields) && bytes.Equal(a.Schema, b.Schema) &&
		slices.Equal(a.Validators, b.Validators) && slices.Equal(a.Routes, b.Routes)
}

// put keeps an entry in place of any other with its key.
func (c *cache) put(key uint64, e entry) {
	e.key = key
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.byKey[key]; ok {
		c.order.Remove(old)
	}
	c.byKey[key] = c.order.PushFront(&e)
	if c.order.Len() > c.max {
		oldest := c.order.Remove(c.order.Back()).(*entry)
		delete(c.byKey, oldest.key)
	}
}
