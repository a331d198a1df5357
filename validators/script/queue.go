package script

import (
	"context"
	"errors"
	"sync"
)

var (
	errBusy   = errors.New("too many calls are waiting")
	errClosed = errors.New("the pool is closed")
)

// queue hands out a fixed number of permits, in turn by owner: an owner that asks
// a hundred times waits behind each other owner's next call, not before it.
type queue struct {
	// capOf says how many permits an owner may hold at once.
	capOf func(owner string) int

	mu      sync.Mutex
	free    int
	limit   int // waiting calls, all owners
	closed  bool
	waiting int
	lines   map[string]*line
	turn    []*line // owners that wait, next first
	holding map[string]int
}

// line is one owner's waiting calls, oldest first.
type line struct {
	owner   string
	tickets []*ticket
}

type ticket struct {
	granted chan struct{} // closed when the permit is there, or the queue was closed
	refused bool
}

func newQueue(permits, limit int, capOf func(string) int) *queue {
	return &queue{capOf: capOf, free: permits, limit: limit, lines: map[string]*line{}, holding: map[string]int{}}
}

// acquire waits for a permit. The error is errBusy, errClosed or ctx's.
func (q *queue) acquire(ctx context.Context, owner string) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return errClosed
	}
	if q.free > 0 && q.lines[owner] == nil && q.holding[owner] < q.capOf(owner) {
		q.free--
		q.holding[owner]++
		q.mu.Unlock()
		return nil
	}
	l := q.lines[owner]
	if q.waiting >= q.limit || l != nil && len(l.tickets) >= (q.limit+1)/2 {
		q.mu.Unlock()
		return errBusy
	}
	t := &ticket{granted: make(chan struct{})}
	if l == nil {
		l = &line{owner: owner}
		q.lines[owner] = l
		q.turn = append(q.turn, l)
	}
	l.tickets = append(l.tickets, t)
	q.waiting++
	q.mu.Unlock()

	select {
	case <-t.granted:
	case <-ctx.Done():
		if q.withdraw(l, t) {
			return ctx.Err()
		}
	}
	if t.refused {
		return errClosed
	}
	return nil
}

// withdraw takes a ticket back; false when it was granted meanwhile.
func (q *queue) withdraw(l *line, t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range l.tickets {
		if other == t {
			l.tickets = append(l.tickets[:i], l.tickets[i+1:]...)
			q.waiting--
			q.tidy(l)
			return true
		}
	}
	return false
}

// release gives a permit back and passes it on.
func (q *queue) release(owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	if q.holding[owner]--; q.holding[owner] == 0 {
		delete(q.holding, owner)
	}
	q.grant()
}

// grant serves the owners in turn while there are permits.
func (q *queue) grant() {
	for i := 0; i < len(q.turn) && q.free > 0; {
		l := q.turn[i]
		if q.holding[l.owner] >= q.capOf(l.owner) {
			i++
			continue
		}
		t := l.tickets[0]
		l.tickets = l.tickets[1:]
		q.waiting--
		q.free--
		q.holding[l.owner]++
		close(t.granted)
		q.turn = append(append(q.turn[:i:i], q.turn[i+1:]...), l)
		q.tidy(l)
	}
}

// tidy forgets an owner who no longer waits.
func (q *queue) tidy(l *line) {
	if len(l.tickets) > 0 {
		return
	}
	delete(q.lines, l.owner)
	for i, other := range q.turn {
		if other == l {
			q.turn = append(q.turn[:i:i], q.turn[i+1:]...)
			return
		}
	}
}

// close refuses everyone who waits and everyone who comes.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, l := range q.lines {
		for _, t := range l.tickets {
			t.refused = true
			close(t.granted)
		}
		l.tickets = nil
	}
	q.lines, q.turn, q.waiting = map[string]*line{}, nil, 0
}

// depth is how many calls wait.
func (q *queue) depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
