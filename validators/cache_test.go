package validators

import "testing"

// TestCacheDetectsHashCollisions: checks with the same hash get separate Sets.
func TestCacheDetectsHashCollisions(t *testing.T) {
	t.Parallel()
	c := newCache(1 << 20)
	owner := Owner{ID: "o"}
	a, b := Checks{RequiredFields: []string{"a"}}, Checks{RequiredFields: []string{"b"}}
	set := &Set{}
	c.put(1, entry{owner: owner, checks: a, set: set})
	if got, _, hit := c.get(1, owner, a); !hit || got != set {
		t.Error("not found")
	}
	if _, _, hit := c.get(1, owner, b); hit {
		t.Error("other checks were taken for the same")
	}
	if _, _, hit := c.get(1, Owner{ID: "o", Trusted: true}, a); hit {
		t.Error("another owner was taken for the same")
	}
	c.put(1, entry{owner: owner, checks: b, set: set})
	if got, _, _ := c.get(1, owner, a); got != nil {
		t.Error("two entries under one key")
	}
}
