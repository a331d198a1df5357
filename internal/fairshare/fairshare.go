// Package fairshare shares a fixed number of permits among callers.
//
// It promises:
//
//   - No caller holds more than its share.
//   - Waiting callers are served in order of the time that they have used (start-time fair queueing: Goyal, Vin, Cheng,
//     SIGCOMM 1996).
//   - A caller with few waiting calls is never rejected because another has many. If the queue is full, the newest call
//     of the caller with the most waiting calls is dropped.
//
// A caller is the principal that makes a call, never the owner of the thing that is called. The package must
// never know the purpose of a permit, and imports no other package of this module.
package fairshare

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

var (
	// ErrBusy reports that too many calls of this caller are waiting. The call may be repeated.
	ErrBusy = errors.New("too many calls are waiting")
	// ErrLate reports that Config.Wait passed. The call may be repeated.
	ErrLate = errors.New("no slot became free in time")
	// ErrClosed reports that the queue is closed.
	ErrClosed = errors.New("the queue is closed")
)

// DefaultWaiting is the default of Config.Waiting.
const DefaultWaiting = 256

// grantCost is charged for each permit in addition to the time it is held, so that callers whose calls take no
// measurable time are served in turn.
const grantCost = time.Microsecond

// maxIdle limits how many idle callers' used times are remembered.
const maxIdle = 4096

// Config configures a Queue.
type Config struct {
	// Permits is the number of permits; values below 1 mean 1.
	Permits int
	// PerCaller is how many permits one caller may hold; 0 means half of Permits, rounded up. If it equals
	// Permits, a single caller may hold all of them, and others must wait for a release.
	PerCaller int
	// Waiting is how many calls of all callers together may wait; 0 means DefaultWaiting.
	Waiting int
	// Wait is how long a call may wait before it fails with ErrLate; 0 means until its context ends.
	Wait time.Duration
}

// Queue grants permits. It is safe for concurrent use.
type Queue struct {
	perCaller  int
	maxWaiting int
	wait       time.Duration

	mu      sync.Mutex
	free    int
	permits int
	closed  bool
	busy    uint64
	// virtualTime is the used time that the most recently served caller had when it was served. New callers start
	// with it: they are neither charged for the past nor given an advantage.
	virtualTime time.Duration
	epoch       time.Time
	callers     map[string]*account
	waiting     []*account // callers with waiting calls, in no particular order
	queued      int        // waiting calls of all callers
	lastTicket  uint64
}

type account struct {
	name    string
	waiting []*ticket // oldest first
	permits int
	used    time.Duration
	// started is the sum of the start times of the held permits, since the epoch.
	started time.Duration
}

type ticket struct {
	number  uint64
	settled chan struct{} // closed once err and start are set
	err     error         // nil if granted
	start   time.Duration // time of the grant, since the epoch
}

// New returns a Queue.
func New(c Config) *Queue {
	c.Permits = max(1, c.Permits)
	if c.PerCaller <= 0 {
		c.PerCaller = (c.Permits + 1) / 2
	}
	if c.Waiting <= 0 {
		c.Waiting = DefaultWaiting
	}
	return &Queue{
		perCaller: min(c.PerCaller, c.Permits), maxWaiting: c.Waiting, wait: c.Wait,
		free: c.Permits, permits: c.Permits, epoch: time.Now(), callers: map[string]*account{},
	}
}

// Acquire waits for a permit. release returns it; further calls of release do nothing. The error is ErrBusy,
// ErrLate, ErrClosed, or the cause of ctx.
func (q *Queue) Acquire(ctx context.Context, caller string) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil, ErrClosed
	}
	a := q.account(caller)
	if q.canHold(a) && len(a.waiting) == 0 {
		release = q.grant(a)
		q.mu.Unlock()
		return release, nil
	}
	t := q.enqueue(a)
	q.mu.Unlock()
	if t == nil {
		return nil, ErrBusy
	}

	if q.wait > 0 {
		bounded, stop := context.WithTimeoutCause(ctx, q.wait, ErrLate)
		defer stop()
		ctx = bounded
	}
	select {
	case <-t.settled:
	case <-ctx.Done():
		if q.withdraw(a, t) {
			return nil, context.Cause(ctx)
		}
	}
	if t.err != nil {
		return nil, t.err
	}
	return q.newRelease(a, t.start), nil
}

// TryAcquire takes a permit only if the caller can get one without waiting.
func (q *Queue) TryAcquire(caller string) (release func(), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, false
	}
	a := q.account(caller)
	if !q.canHold(a) || len(a.waiting) > 0 {
		q.busy++
		q.dropAccount(a)
		return nil, false
	}
	return q.grant(a), true
}

// Close fails all waiting and future calls with ErrClosed. Held permits can still be released.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, a := range q.waiting {
		for _, t := range a.waiting {
			t.settle(ErrClosed)
		}
		a.waiting = nil
	}
	q.waiting, q.queued = nil, 0
}

// Stats describes the state of a Queue.
type Stats struct {
	Held, Waiting int    // permits held and calls waiting now
	Busy          uint64 // calls rejected or dropped since the start, including failed TryAcquire
}

// Stats returns the current values.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Held: q.permits - q.free, Waiting: q.queued, Busy: q.busy}
}

// The functions below require q.mu, except withdraw, which locks it.

func (q *Queue) account(caller string) *account {
	a := q.callers[caller]
	if a == nil {
		if len(q.callers) >= maxIdle {
			maps.DeleteFunc(q.callers, func(_ string, a *account) bool { return a.isIdle() })
		}
		a = &account{name: caller}
		q.callers[caller] = a
	}
	if a.permits == 0 && len(a.waiting) == 0 {
		a.used = max(a.used, q.virtualTime)
	}
	return a
}

func (q *Queue) canHold(a *account) bool { return q.free > 0 && a.permits < q.perCaller }

func (q *Queue) grant(a *account) (release func()) {
	return q.newRelease(a, q.recordGrant(a))
}

// recordGrant records a permit and returns the time of the grant.
func (q *Queue) recordGrant(a *account) time.Duration {
	now := time.Since(q.epoch)
	q.virtualTime = max(q.virtualTime, a.usedAt(now))
	q.free--
	a.permits++
	a.started += now
	a.used += grantCost
	return now
}

func (q *Queue) newRelease(a *account, start time.Duration) func() {
	released := false
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if released {
			return
		}
		released = true
		q.free++
		a.permits--
		a.used += time.Since(q.epoch) - start
		a.started -= start
		q.grantWaiting()
		q.dropAccount(a)
	}
}

// enqueue adds a ticket to the caller's line. It returns nil if the call must be rejected.
func (q *Queue) enqueue(a *account) *ticket {
	if q.queued >= q.maxWaiting {
		q.busy++
		longest := q.findLongestLine()
		if longest == nil || len(longest.waiting) <= len(a.waiting)+1 {
			q.dropAccount(a)
			return nil
		}
		newest := longest.waiting[len(longest.waiting)-1]
		q.remove(longest, newest)
		newest.settle(ErrBusy)
	}
	q.lastTicket++
	t := &ticket{number: q.lastTicket, settled: make(chan struct{})}
	if len(a.waiting) == 0 {
		q.waiting = append(q.waiting, a)
	}
	a.waiting = append(a.waiting, t)
	q.queued++
	return t
}

func (q *Queue) findLongestLine() *account {
	var longest *account
	for _, a := range q.waiting {
		if longest == nil || len(a.waiting) > len(longest.waiting) {
			longest = a
		}
	}
	return longest
}

// grantWaiting grants free permits to waiting callers, least used time first.
func (q *Queue) grantWaiting() {
	for q.free > 0 {
		now := time.Since(q.epoch)
		var next *account
		for _, a := range q.waiting {
			if q.canHold(a) && (next == nil || a.isBefore(next, now)) {
				next = a
			}
		}
		if next == nil {
			return
		}
		t := next.waiting[0]
		t.start = q.recordGrant(next)
		q.remove(next, t)
		t.settle(nil)
	}
}

// withdraw removes a ticket from its line. It returns false if the ticket has been settled.
func (q *Queue) withdraw(a *account, t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ok := q.remove(a, t)
	q.dropAccount(a)
	return ok
}

func (q *Queue) remove(a *account, t *ticket) bool {
	i := slices.Index(a.waiting, t)
	if i < 0 {
		return false
	}
	a.waiting = slices.Delete(a.waiting, i, i+1)
	q.queued--
	if len(a.waiting) == 0 {
		at := slices.Index(q.waiting, a)
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	return true
}

// dropAccount forgets an idle caller without debt. If the queue is idle, it forgets all callers and their
// debts.
func (q *Queue) dropAccount(a *account) {
	if q.free == q.permits && q.queued == 0 {
		clear(q.callers)
		q.virtualTime = 0
		return
	}
	if a.isIdle() && a.used <= q.virtualTime && q.callers[a.name] == a {
		delete(q.callers, a.name)
	}
}

func (a *account) isIdle() bool { return a.permits == 0 && len(a.waiting) == 0 }

// usedAt returns the caller's used time at now, including the permits that it still holds.
func (a *account) usedAt(now time.Duration) time.Duration {
	return a.used + time.Duration(a.permits)*now - a.started
}

func (a *account) isBefore(b *account, now time.Duration) bool {
	if ua, ub := a.usedAt(now), b.usedAt(now); ua != ub {
		return ua < ub
	}
	return a.waiting[0].number < b.waiting[0].number
}

func (t *ticket) settle(err error) {
	t.err = err
	close(t.settled)
}
