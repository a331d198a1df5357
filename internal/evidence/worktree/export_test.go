package worktree

// NewCache returns an empty cache that trusts stamps of any age.
func NewCache() *Cache { return &Cache{} }

// Reopen returns the cache as the next process reads it.
func (c *Cache) Reopen() (*Cache, error) {
	again, err := UnmarshalCache(c.Marshal())
	if err == nil {
		again.minAge = c.minAge
	}
	return again, err
}
