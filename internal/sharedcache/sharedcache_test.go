package sharedcache_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/internal/sharedcache"
)

func TestLeastRecentlyUsedGoesFirst(t *testing.T) {
	c := sharedcache.New[string, int](100, 30)
	for i, key := range []string{"a", "b", "c"} {
		c.Put(key, "one", 10, i)
	}
	c.Get("a")
	c.Put("d", "one", 10, 3)
	if _, ok := c.Get("b"); ok {
		t.Error("b is kept beyond its owner's part")
	}
	if v, ok := c.Get("a"); !ok || v != 0 {
		t.Error("a went though it was used")
	}
	c.Put("a", "two", 5, 7)
	if v, _ := c.Get("a"); v != 7 || c.Bytes() != 25 {
		t.Errorf("got %d, %d bytes", v, c.Bytes())
	}
	c.Put("a", "two", 31, 8)
	if _, ok := c.Get("a"); ok || c.Bytes() != 20 {
		t.Errorf("what is larger than a part is kept: %d bytes", c.Bytes())
	}
}

// TestBusyOwnerEvictsOnlyItself: an owner that uses less than an equal share keeps all its entries.
func TestBusyOwnerEvictsOnlyItself(t *testing.T) {
	c := sharedcache.New[string, int](1000, 250)
	c.Put("quiet", "operator", 90, 1)
	for i := range 10_000 {
		c.Put(fmt.Sprint(i), fmt.Sprint("owner", i%9), 10, i)
	}
	if _, ok := c.Get("quiet"); !ok {
		t.Error("pushed out by owners that have more")
	}
	if c.Bytes() > 1000 {
		t.Errorf("%d bytes", c.Bytes())
	}
}

func TestBytesAreThoseOfTheEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := sharedcache.New[int, int](100, 40)
		size := map[int]int{}
		for range rapid.IntRange(1, 60).Draw(t, "puts") {
			key, bytes := rapid.IntRange(0, 9).Draw(t, "key"), rapid.IntRange(1, 50).Draw(t, "bytes")
			c.Put(key, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner"), bytes, bytes)
			size[key] = bytes
			sum := 0
			for k, n := range size {
				if v, ok := c.Get(k); ok {
					if sum += n; v != n {
						t.Fatalf("%d holds %d", k, v)
					}
				}
			}
			if sum != c.Bytes() || sum > 100 {
				t.Fatalf("%d bytes are kept, %d are counted", sum, c.Bytes())
			}
		}
	})
}
