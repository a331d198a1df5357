package mcpface

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/server"
)

// remoteSession is a session of a protocol era with initialize. It belongs to the
// principal that began it, and its id is no credential: whoever is not that principal is
// told that it is not there.
type remoteSession struct {
	*session
	id, principal string

	// The table's lock guards what follows.
	last     time.Time // when it was last used
	busy     int       // requests and streams
	stream   *listening
	listened bool // there was a stream before
}

// listening is the one stream over which a session is told of changes.
type listening struct {
	reply *reply
	end   context.CancelFunc
	ended chan struct{}
}

// table has the sessions.
type table struct {
	quota *quota
	idle  time.Duration

	mu sync.Mutex
	of map[string]*remoteSession
}

func newTable(l Limits) *table {
	return &table{quota: newQuota(l.Sessions, l.SessionsEach), idle: l.Idle, of: map[string]*remoteSession{}}
}

// add keeps a session under a new id.
func (t *table) add(s *remoteSession) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.id, s.last, s.busy = rand.Text(), time.Now(), 1
	t.of[s.id] = s
	return s.id
}

// use is the session of an id for a request of its principal, nil when there is none.
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

func (t *table) has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[id] != nil
}

// remove forgets a session and ends its stream. It does nothing the second time.
func (t *table) remove(id string) {
	t.mu.Lock()
	s := t.of[id]
	delete(t.of, id)
	var l *listening
	if s != nil {
		l, s.stream = s.stream, nil
	}
	t.mu.Unlock()
	if s == nil {
		return
	}
	t.quota.give(s.principal)
	s.asks.end()
	if l != nil {
		l.end()
	}
}

// endAsking ends every wait for a person.
func (t *table) endAsking() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.of {
		s.asks.end()
	}
}

// listens makes l the session's stream, and returns the one that it takes the place of
// and whether there ever was one.
func (t *table) listens(s *remoteSession, l *listening) (before *listening, again bool) {
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

// heard is the stream over which a session is told of changes now.
func (t *table) heard(s *remoteSession) *reply {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.stream == nil {
		return nil
	}
	return s.stream.reply
}

// all are the ids of all sessions.
func (t *table) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.of))
}

// stale are the ids of sessions that nobody has used for longer than idle.
func (t *table) stale(idle time.Duration) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for id, s := range t.of {
		if s.busy == 0 && time.Since(s.last) > idle {
			ids = append(ids, id)
		}
	}
	return ids
}

// oldest is the session of a principal that was used longest ago, among those that
// nobody has used for a minute; "" when there is none.
func (t *table) oldest(principal string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found *remoteSession
	for _, s := range t.of {
		if s.principal == principal && s.busy == 0 && time.Since(s.last) > time.Minute && (found == nil || s.last.Before(found.last)) {
			found = s
		}
	}
	if found == nil {
		return ""
	}
	return found.id
}

// manager is what the library asks about ids; the endpoint has looked at them before.
type manager struct {
	t *table
	r *http.Request // nil outside of a request
}

var errNoSuchSession = errors.New("no such session")

// Generate is called for initialize, for which the endpoint made a session.
func (m manager) Generate() string {
	if m.r == nil {
		return ""
	}
	s, ok := m.r.Context().Value(newSessionKey{}).(*remoteSession)
	if !ok {
		return ""
	}
	return m.t.add(s)
}

// Validate refuses what is not in the table.
func (m manager) Validate(id string) (ended bool, err error) {
	if !m.t.has(id) {
		return false, errNoSuchSession
	}
	return false, nil
}

// Terminate forgets a session.
func (m manager) Terminate(id string) (notAllowed bool, err error) {
	m.t.remove(id)
	return false, nil
}

// newSessionKey is what carries a new session to Generate.
type newSessionKey struct{}

// ResolveSessionIdManager makes a table the library's resolver.
//
//nolint:revive,staticcheck // the library spells it so
func (t *table) ResolveSessionIdManager(r *http.Request) server.SessionIdManager {
	return manager{t, r}
}
