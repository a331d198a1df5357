package mcpwire

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// remoteSession is a session of a protocol era with initialize. It belongs to the principal
// that began it, and its id is no credential: other principals get 404.
type remoteSession struct {
	*session
	principal string
	release   func()   // gives its place back
	running   sync.Map // of the requests in flight, by key: *context.CancelFunc

	// The table's lock guards what follows.
	last     time.Time // when it was last used
	busy     int       // requests and streams
	stream   *listening
	listened bool // there was a stream before
}

// listening is the one stream over which a session gets changes.
type listening struct {
	write func(line []byte) error
	end   context.CancelFunc
	ended chan struct{}
}

// table has the sessions.
type table struct {
	places *fairshare.Queue

	mu sync.Mutex
	of map[string]*remoteSession
}

// newPlaces returns places for so many sessions or streams, and for so many of each principal.
func newPlaces(all, each int) *fairshare.Queue {
	return fairshare.New(fairshare.Config{Permits: all, PerCaller: each})
}

func newTable(l Limits) *table {
	return &table{places: newPlaces(l.Sessions, l.SessionsEach), of: map[string]*remoteSession{}}
}

// add keeps a session under a new id.
func (t *table) add(s *remoteSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.id, s.last = rand.Text(), time.Now()
	t.of[s.id] = s
}

// use returns the session of an id for a request of its principal, nil when there is none.
func (t *table) use(id, principal string) *remoteSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of[id]
	if s == nil || s.principal != principal {
		return nil
	}
	s.busy++
	s.last = time.Now()
	return s
}

// done ends what use began.
func (t *table) done(s *remoteSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.busy--
	s.last = time.Now()
}

// remove ends a session and its stream. It does nothing the second time.
func (t *table) remove(s *remoteSession) {
	t.mu.Lock()
	known, l := t.of[s.id] == s, s.stream
	delete(t.of, s.id)
	s.stream = nil
	t.mu.Unlock()
	if !known {
		return
	}
	s.release()
	s.asks.end()
	if l != nil {
		l.end()
	}
}

// listen makes l the session's stream, and returns the one that it takes the place of and
// whether there ever was one.
func (t *table) listen(s *remoteSession, l *listening) (before *listening, again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, again = s.stream, s.listened
	s.stream, s.listened = l, true
	return before, again
}

// unlisten takes l out unless another stream took its place.
func (t *table) unlisten(s *remoteSession, l *listening) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.stream == l {
		s.stream = nil
	}
}

// write writes to the stream over which a session gets changes now.
func (t *table) write(s *remoteSession, line []byte) error {
	t.mu.Lock()
	l := s.stream
	t.mu.Unlock()
	if l == nil {
		return errReplyOver
	}
	return l.write(line)
}

// idle returns the sessions of a principal, "" for all, that have been unused for a time, the
// longest unused first.
func (t *table) idle(principal string, since time.Duration) []*remoteSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	var idle []*remoteSession
	for _, s := range t.of {
		if (principal == "" || s.principal == principal) && s.busy == 0 && time.Since(s.last) > since {
			idle = append(idle, s)
		}
	}
	slices.SortFunc(idle, func(a, b *remoteSession) int { return a.last.Compare(b.last) })
	return idle
}

func (t *table) all() []*remoteSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.of))
}
