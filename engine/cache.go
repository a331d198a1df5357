package engine

import (
	"sync"
)

const (
	// definitionBytes limits the memory for parsed definitions, and definitionBytesEach the share of one
	// owner. All operators count as one owner.
	definitionBytes     = 64 << 20
	definitionBytesEach = 16 << 20
)

type definitionKey struct {
	name    string
	version int
}

// cacheDefinition caches a parsed version. Versions never change.
func (lib *library) cacheDefinition(l definition) {
	owner := "principal " + l.stored.Owner
	if l.stored.Operator {
		owner = "operators"
	}
	lib.definitions.Put(definitionKey{l.stored.Name, l.stored.Version}, owner, l.def.Size(), l)
}

// scopeLocks serialises concurrent requests of one scope within this process, so that later ones see the writes of
// earlier ones.
type scopeLocks struct {
	mu sync.Mutex
	m  map[string]*scopeLock
}

type scopeLock struct {
	turn chan struct{} // holds one token
	refs int
}

func newScopeLocks() *scopeLocks { return &scopeLocks{m: map[string]*scopeLock{}} }

// isLocked reports whether a request of the scope is running or waiting.
func (w *scopeLocks) isLocked(scope string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.m[scope] != nil
}

// acquire waits until no other request of the scope is running, or until done is closed. The returned release
// is nil if done was closed first.
func (w *scopeLocks) acquire(done <-chan struct{}, scope string) (release func(), waited bool) {
	w.mu.Lock()
	e, ok := w.m[scope]
	if !ok {
		e = &scopeLock{turn: make(chan struct{}, 1)}
		e.turn <- struct{}{}
		w.m[scope] = e
	}
	e.refs++
	w.mu.Unlock()

	leave := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if e.refs--; e.refs == 0 {
			delete(w.m, scope)
		}
	}
	release = func() { e.turn <- struct{}{}; leave() }
	select {
	case <-e.turn:
		return release, false
	default:
	}
	select {
	case <-e.turn:
		return release, true
	case <-done:
		leave()
		return nil, true
	}
}
