package validators

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/gavel-mcp/gavel/internal/sharedcache"
	"github.com/gavel-mcp/gavel/validators/script"
)

// cache keeps compiled checks. Layers compile on every decision, so a hit must cost
// little: the key is a fast hash, and what it finds is compared with what was asked for.
type cache struct {
	seed maphash.Seed
	kept *sharedcache.Cache[uint64, *entry]
}

type entry struct {
	owner    Owner
	checks   Checks
	set      *Set
	problems []Problem
}

// ownerShare is the part of a cache that the checks of one owner may take.
const ownerShare = 8

func newCache(bytes int) cache {
	return cache{seed: maphash.MakeSeed(), kept: sharedcache.New[uint64, *entry](bytes, bytes/ownerShare)}
}

// hashKey hashes everything that the compiled form depends on.
func (c *cache) hashKey(owner Owner, checks Checks) uint64 {
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
	e, ok := c.kept.Get(key) // never changed once it is in
	if !ok || e.owner != owner || !sameChecks(e.checks, checks) {
		return nil, nil, false
	}
	return e.set, slices.Clone(e.problems), true
}

func sameChecks(a, b Checks) bool {
	return slices.Equal(a.RequiredFields, b.RequiredFields) && bytes.Equal(a.Schema, b.Schema) &&
		slices.Equal(a.Validators, b.Validators) && slices.Equal(a.Routes, b.Routes)
}

func (c *cache) put(key uint64, e entry) {
	owner := "stranger " + e.owner.ID
	if e.owner.Trusted {
		owner = "operator"
	}
	c.kept.Put(key, owner, estimateSize(e.checks), &e)
}

// estimateSize is about how many bytes compiled checks take in memory.
func estimateSize(c Checks) int {
	bytes := 512 + 8*len(c.Schema)
	for _, f := range c.RequiredFields {
		bytes += 96 + 2*len(f)
	}
	for _, group := range [...][]script.Script{c.Validators, c.Routes} {
		for _, s := range group {
			bytes += 96 + len(s.Name) + len(s.Source)
		}
	}
	return bytes
}
