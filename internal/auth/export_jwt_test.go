package auth

import (
	"sync"
	"time"
)

// Clock is a JWT's, as far ahead of the real one as a test wants.
type Clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// Add moves it.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// Now is its time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// FakeClock gives a JWT a clock that a test moves.
func FakeClock(j *JWT) *Clock {
	c := &Clock{}
	j.now, j.keys.now = c.Now, c.Now
	return c
}
