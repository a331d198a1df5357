package mcpface

import (
	"errors"
	"sync"
	"time"
)

// Limits bound what callers over HTTP may hold at once: all of them, and each principal.
// Zero values are the defaults.
type Limits struct {
	// Sessions are those of the protocol eras with initialize: 5000, each 2000.
	Sessions, SessionsEach int
	// Streams stay open: GET, and subscriptions/listen. 2000, each 200.
	Streams, StreamsEach int
	// Idle is how long a session without request and stream lasts: 30 minutes.
	Idle time.Duration
	// Stream is how long one stream lasts at most: 1 hour. Clients open another, and
	// then show their credential again.
	Stream time.Duration
	// Alive is how often a quiet stream is written to: 20 seconds.
	Alive time.Duration
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field *int
		value int
	}{{&l.Sessions, 5000}, {&l.SessionsEach, 2000}, {&l.Streams, 2000}, {&l.StreamsEach, 200}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&l.Idle, 30 * time.Minute}, {&l.Stream, time.Hour}, {&l.Alive, 20 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return l
}

func (l Limits) validate() error {
	if min(l.Sessions, l.SessionsEach, l.Streams, l.StreamsEach) < 1 || min(l.Idle, l.Stream, l.Alive) < 0 {
		return errors.New("mcpface: the limits over HTTP are positive")
	}
	return nil
}

// quota counts what principals hold of one kind.
type quota struct {
	all, each int

	mu    sync.Mutex
	total int
	of    map[string]int
}

func newQuota(all, each int) *quota { return &quota{all: all, each: each, of: map[string]int{}} }

// take reports whether one more is within the limits, and then counts it until give.
func (q *quota) take(principal string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.total >= q.all || q.of[principal] >= q.each {
		return false
	}
	q.total++
	q.of[principal]++
	return true
}

func (q *quota) give(principal string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total--
	if q.of[principal]--; q.of[principal] == 0 {
		delete(q.of, principal)
	}
}
