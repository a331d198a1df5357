package worktree

// NewCache is an empty cache that trusts stamps from their first moment on.
func NewCache() *Cache { return &Cache{} }

// Reopen is the cache as the next process reads it.
func (c *Cache) Reopen() (*Cache, error) {
	again, err := UnmarshalCache(c.Marshal())
	if err == nil {
		again.settled = c.settled
	}
	return again, err
}
