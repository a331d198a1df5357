package llm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// latch remembers a failure that only a person can fix, and fails calls without a request. When it expires,
// one caller probes the endpoint; the others still get the failure.
type latch struct {
	mu      sync.Mutex
	fail    *Error // nil if there is none
	until   time.Time
	probing bool
}

// How long a latch blocks calls: after ClassQuota, and after the other failures.
const (
	quotaLatch  = 10 * time.Minute
	configLatch = time.Minute
)

func latchDuration(err error) time.Duration {
	if errors.Is(err, ErrCassetteMiss) {
		return 0 // the next question may be on the cassette
	}
	if fail := asError(err); fail == nil || fail.Calls == 0 {
		return 0 // the question was invalid and the endpoint was not asked
	}
	switch ClassOf(err) {
	case ClassQuota:
		return quotaLatch
	case ClassAuth, ClassNotFound, ClassConfig:
		return configLatch
	default:
		return 0
	}
}

// enter returns the remembered failure, or nil and whether the caller probes.
func (l *latch) enter() (probes bool, refusal *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail == nil {
		return false, nil
	}
	left := time.Until(l.until)
	if left <= 0 && !l.probing {
		l.probing = true
		return true, nil
	}
	return false, l.refusal(left)
}

func (l *latch) refusal(left time.Duration) *Error {
	again := *l.fail
	again.Calls, again.Usage, again.RetryAfter = 0, nil, max(left, time.Second)
	again.Message = fmt.Sprintf("%s (known from an earlier call; the next one is in %v)", again.Message, again.RetryAfter.Round(time.Second))
	return &again
}

func (l *latch) leave(probed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if probed {
		l.probing = false
	}
	fail, lasts := asError(err), latchDuration(err)
	switch {
	case lasts > 0:
		l.fail, l.until = fail, time.Now().Add(lasts)
	case err == nil || fail != nil && (fail.Class.Traits().Success || fail.Class.Traits().Failure):
		l.fail = nil // it works again, or fails in another way
	}
}

func (l *latch) current() (*Error, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fail, l.until
}

func withLatch(next Completer, l *latch) Completer {
	guarded := withGuard(next, func(string) (bool, *Error) { return l.enter() }, func(_ string, probes bool, err error) { l.leave(probes, err) })
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		reply, err := guarded.Complete(ctx, req)
		if lasts := latchDuration(err); lasts > 0 && asError(err).RetryAfter == 0 {
			return reply, asError(err).withChange(func(e *Error) { e.RetryAfter = lasts })
		}
		return reply, err
	})
}

// withGuard calls next only for callers that enter admits. When a question ends, it calls leave with the
// error and whether it was a probe, even after a panic.
func withGuard(next Completer, enter func(caller string) (probes bool, refusal *Error), leave func(caller string, probes bool, err error)) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (reply Reply, err error) {
		probes, refusal := enter(req.Caller)
		if refusal != nil {
			return Reply{}, refusal
		}
		err = context.Canceled // the result in case of a panic
		defer func() { leave(req.Caller, probes, err) }()
		reply, err = next.Complete(ctx, req)
		return reply, err
	})
}

// maxLatchWait limits how long an endpoint can pause calls.
const maxLatchWait = 10 * time.Minute

// notBefore remembers the pause that an endpoint asked for.
type notBefore struct {
	mu    sync.Mutex
	until time.Time
	limit Class // the reason for the pause
}

func (n *notBefore) remaining() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Until(n.until)
}

func (n *notBefore) closeFor(d time.Duration, limit Class) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if until := time.Now().Add(min(d, maxLatchWait)); until.After(n.until) {
		n.until, n.limit = until, limit
	}
}

func (n *notBefore) refusal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := time.Until(n.until)
	if left <= 0 {
		return nil
	}
	return &Error{Class: ClassNotBefore, Limit: n.limit, Message: "the endpoint asked for a pause", RetryAfter: left}
}

func withNotBefore(next Completer, g *notBefore) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if err := g.refusal(); err != nil {
			return Reply{}, err
		}
		reply, err := next.Complete(ctx, req)
		if fail := asError(err); fail != nil && fail.RetryAfter > 0 && (fail.Class == ClassRateLimited || fail.Class == ClassOverloaded) {
			g.closeFor(fail.RetryAfter, fail.Class)
		}
		return reply, err
	})
}

// quality counts usable answers for each caller. It stops asking the model for a caller whose answers are
// mostly unusable: the data may confuse the model, and each attempt costs money. Other callers are not
// affected.
type quality struct {
	mu      sync.Mutex
	callers *callerMap[callerQuality]
}

// A caller is blocked for qualityLatch if at least qualityShare of its recent answers were unusable. At
// least qualityMin and at most qualityWindow answers count.
const (
	qualityShare  = 0.5
	qualityMin    = 6
	qualityWindow = 20
	qualityLatch  = time.Minute
)

type callerQuality struct {
	poor    []bool // whether each of the last answers was unusable, oldest first
	until   time.Time
	probing bool
}

// maxCallers limits the number of records; the least recently used one is evicted.
const maxCallers = 4096

// callerMap holds a record for each caller. Its owner must lock it.
type callerMap[V any] struct {
	*simplelru.LRU[string, *V]
	create func() *V
}

func newCallerMap[V any](create func() *V) *callerMap[V] {
	records, err := simplelru.NewLRU[string, *V](maxCallers, nil)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &callerMap[V]{records, create}
}

func (m *callerMap[V]) get(name string) *V {
	if v, ok := m.Get(name); ok {
		return v
	}
	v := m.create()
	m.Add(name, v)
	return v
}

func newQuality() *quality {
	return &quality{callers: newCallerMap(func() *callerQuality { return &callerQuality{} })}
}

// enter returns a refusal for a caller that must wait; otherwise it reports whether the question is a probe.
func (q *quality) enter(name string) (probes bool, refusal *Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.callers.get(name)
	if c.until.IsZero() {
		return false, nil
	}
	left := time.Until(c.until)
	if left <= 0 && !c.probing {
		c.probing = true
		return true, nil
	}
	return false, &Error{
		Class: ClassQuality, RetryAfter: max(left, time.Second),
		Message: "most of the model's recent answers to this caller were unusable, so it is not asked for a while",
		Advice:  "send shorter, simpler data; gavel judge doctor checks whether the model is the cause",
	}
}

func (q *quality) leave(name string, probed bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.callers.get(name)
	if probed {
		c.probing = false
	}
	poor := ClassOf(err).Traits().Poor
	if err != nil && !poor {
		return // reveals nothing about answers
	}
	if probed && !poor {
		c.until, c.poor = time.Time{}, nil
		return
	}
	c.poor = append(c.poor, poor)
	if len(c.poor) > qualityWindow {
		c.poor = c.poor[1:]
	}
	bad := 0
	for _, p := range c.poor {
		if p {
			bad++
		}
	}
	if probed || len(c.poor) >= qualityMin && poor && float64(bad) >= qualityShare*float64(len(c.poor)) {
		c.until = time.Now().Add(qualityLatch)
	}
}

func (q *quality) countLatched() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, c := range q.callers.Values() {
		if time.Until(c.until) > 0 {
			n++
		}
	}
	return n
}

func withQuality(next Completer, q *quality) Completer {
	return withGuard(next, q.enter, q.leave)
}
