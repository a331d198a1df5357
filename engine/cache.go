package engine

import (
	"container/list"
	"sync"
)

// definitionCache keeps parsed definition versions, which never change, least
// recently used first out.
type definitionCache struct {
	mu    sync.Mutex
	max   int
	order *list.List // of loaded, newest use first
	byKey map[definitionKey]*list.Element
}

type definitionKey struct {
	name    string
	version int
}

func newDefinitionCache(maxEntries int) *definitionCache {
	return &definitionCache{max: maxEntries, order: list.New(), byKey: map[definitionKey]*list.Element{}}
}

func (c *definitionCache) get(name string, version int) (loaded, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byKey[definitionKey{name, version}]
	if !ok {
		return loaded{}, false
	}
	c.order.MoveToFront(el)
	return el.Value.(loaded), true
}

func (c *definitionCache) put(l loaded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := definitionKey{l.stored.Name, l.stored.Version}
	if el, ok := c.byKey[key]; ok {
		c.order.MoveToFront(el)
		return
	}
	c.byKey[key] = c.order.PushFront(l)
	if c.order.Len() > c.max {
		last := c.order.Back()
		old := c.order.Remove(last).(loaded)
		delete(c.byKey, definitionKey{old.stored.Name, old.stored.Version})
	}
}

// waiters lets concurrent requests with one scope go one after the other within
// this process, so that the later ones find what the first one has written.
type waiters struct {
	mu sync.Mutex
	m  map[string]*waiter
}

type waiter struct {
	turn chan struct{} // holds one token
	refs int
}

func newWaiters() *waiters { return &waiters{m: map[string]*waiter{}} }

// acquire takes its turn, or waits for it or for done. The returned release is nil
// when done came first.
func (w *waiters) acquire(done <-chan struct{}, scope string) (release func(), waited bool) {
	w.mu.Lock()
	e, ok := w.m[scope]
	if !ok {
		e = &waiter{turn: make(chan struct{}, 1)}
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
