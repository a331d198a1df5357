package wire

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// remoteSession is a session of a protocol version with initialize. It belongs to the principal that started it. Its
// id is not a credential: other principals get 404.
type remoteSession struct {
	*session
	principal string
	release   func()   // releases its share of the session limit
	running   sync.Map // requests in flight: id key -> *context.CancelFunc

	// The fields below are guarded by the table's mutex.
	last     time.Time // time of last use
	busy     int       // number of open requests and streams
	stream   *sessionStream
	listened bool // the session has had a stream before
}

// sessionStream is the single stream over which a session receives changes.
type sessionStream struct {
	write func(line []byte) error
	end   context.CancelFunc
	ended chan struct{}
}

// sessionTable holds the open sessions.
type sessionTable struct {
	slots *fairshare.Queue

	mu sync.Mutex
	of map[string]*remoteSession
}

// newSlots returns a queue that admits a total number of sessions or streams, and a number for each principal.
func newSlots(all, each int) *fairshare.Queue {
	return fairshare.New(fairshare.Config{Permits: all, PerCaller: each})
}

func newTable(l Limits) *sessionTable {
	return &sessionTable{slots: newSlots(l.Sessions, l.SessionsEach), of: map[string]*remoteSession{}}
}

// add registers a session under a new id.
func (t *sessionTable) add(s *remoteSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.id, s.last = rand.Text(), time.Now()
	t.of[s.id] = s
}

// acquire returns the principal's session with this id and marks it busy, or returns nil if there is none.
func (t *sessionTable) acquire(id, principal string) *remoteSession {
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

// release marks the end of a use.
func (t *sessionTable) release(s *remoteSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.busy--
	s.last = time.Now()
}

// remove ends a session and its stream. Further calls have no effect.
func (t *sessionTable) remove(s *remoteSession) {
	t.mu.Lock()
	known, l := t.of[s.id] == s, s.stream
	delete(t.of, s.id)
	s.stream = nil
	t.mu.Unlock()
	if !known {
		return
	}
	s.release()
	s.requester.end()
	if l != nil {
		l.end()
	}
}

// listen makes l the session's stream. It returns the stream that l replaces, and whether the session ever had one.
func (t *sessionTable) listen(s *remoteSession, l *sessionStream) (before *sessionStream, again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, again = s.stream, s.listened
	s.stream, s.listened = l, true
	return before, again
}

// unlisten removes l unless another stream has replaced it.
func (t *sessionTable) unlisten(s *remoteSession, l *sessionStream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.stream == l {
		s.stream = nil
	}
}

// write writes to the session's current stream.
func (t *sessionTable) write(s *remoteSession, line []byte) error {
	t.mu.Lock()
	l := s.stream
	t.mu.Unlock()
	if l == nil {
		return errReplyOver
	}
	return l.write(line)
}

// idle returns a principal's sessions that have been unused for longer than since, longest unused first. An empty
// principal selects all.
func (t *sessionTable) idle(principal string, since time.Duration) []*remoteSession {
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

func (t *sessionTable) all() []*remoteSession {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.of))
}
