package auth

import (
	"sync"
	"time"
)

// Clock is the clock of a JWT, which tests can advance.
type Clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// Add advances the clock.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// FakeClock gives a JWT a clock that a test can advance.
func FakeClock(j *JWT) *Clock {
	c := &Clock{}
	j.now, j.keys.now = c.Now, c.Now
	return c
}
