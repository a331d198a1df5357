package llm

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

const (
	breakerShare  = 0.5             // share of failures that opens it
	breakerWindow = 2 * time.Minute // period in which calls are counted
	breakerOpen   = 30 * time.Second
)

// breaker stops calls to a model that keeps failing. It counts only results that reveal the state of the
// endpoint. A refusal is a success of the endpoint, and a cancellation by the caller is not counted. Failures
// that callers can cause with many or slow questions are not counted either (see lateness).
type breaker struct {
	two    *gobreaker.TwoStepCircuitBreaker[any]
	opened atomic.Int64 // time of the last opening, in nanoseconds since 1970
	streak atomic.Int64 // consecutive failed requests of all questions
}

func newBreaker(cfg Config) *breaker {
	b := &breaker{}
	b.two = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		MaxRequests: 1, Interval: breakerWindow, BucketPeriod: breakerWindow / 12, Timeout: breakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			valid := c.TotalSuccesses + c.TotalFailures
			return int(c.ConsecutiveFailures) >= cfg.BreakerFailures ||
				int(valid) >= cfg.BreakerMin && float64(c.TotalFailures) >= breakerShare*float64(valid)
		},
		// Callbacks run under the breaker's lock and must not call its methods.
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.opened.Store(time.Now().UnixNano())
			}
		},
		IsSuccessful: func(err error) bool { return err == nil || ClassOf(err).Traits().Success },
		IsExcluded: func(err error) bool {
			t := ClassOf(err).Traits()
			return err != nil && !t.Failure && !t.Success
		},
	})
	return b
}

// noteCall counts one HTTP request. The breaker itself counts a question only when it ends, not while it waits
// for a retry. Without this count, a thousand concurrent questions would all call a dead endpoint.
func (b *breaker) noteCall(err error) {
	switch t := ClassOf(err).Traits(); {
	case err == nil || t.Success:
		b.streak.Store(0)
	case t.Failure:
		b.streak.Add(1)
	}
}

// allowsRetry reports whether a retry may help. It returns false once there are as many consecutive
// failures as open the breaker, and more than one question alone can cause.
func (b *breaker) allowsRetry(cfg Config) bool {
	return b.streak.Load() < int64(max(cfg.BreakerFailures, cfg.Retries+1))
}

func (b *breaker) state() string { return b.two.State().String() }

func (b *breaker) refusal(err error) *Error {
	fail := &Error{
		Class: ClassBreakerOpen, Breaker: "open", RetryAfter: time.Second,
		Message: "the endpoint keeps failing and is paused for a while",
	}
	if errors.Is(err, gobreaker.ErrOpenState) {
		fail.RetryAfter = max(time.Until(time.Unix(0, b.opened.Load()).Add(breakerOpen)), time.Millisecond)
		return fail
	}
	fail.Breaker, fail.Message = "half-open", "the endpoint keeps failing; one call is checking whether it is back"
	return fail
}

// withBreaker calls next only while the breaker allows it.
func withBreaker(next Completer, b *breaker) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		state := b.state()
		done, err := b.two.Allow()
		if err != nil {
			return Reply{}, b.refusal(err)
		}
		ended := false
		defer func() {
			if !ended { // otherwise a panic would leave the breaker half-open forever
				done(&Error{Class: ClassUpstream})
			}
		}()
		reply, err := next.Complete(ctx, req)
		ended = true
		done(err)
		reply.Breaker = state
		if fail := asError(err); fail != nil && fail.Breaker == "" {
			return Reply{}, fail.withChange(func(e *Error) { e.Breaker = state })
		}
		return reply, err
	})
}

// withRecheck checks the breaker and the pause again after waiting for a place, because earlier calls
// may have found the endpoint dead in the meantime.
func withRecheck(next Completer, b *breaker, g *notBefore) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if b.two.State() == gobreaker.StateOpen {
			return Reply{}, b.refusal(gobreaker.ErrOpenState)
		}
		if err := g.refusal(); err != nil {
			return Reply{}, err
		}
		reply, err := next.Complete(ctx, req)
		b.noteCall(err)
		return reply, err
	})
}

// lateLimit is the number of consecutive late answers after which a caller must wait for a probe.
const lateLimit = 2

// lateness distinguishes an endpoint that hangs from questions that take too long. One late answer proves
// nothing: this case, or the caller's other questions, may be slow. After several in a row, the gate sends a
// short question as a probe. If the probe is late too while no other request runs at the endpoint, the
// endpoint counts as down for all callers.
type lateness struct {
	idle func() bool // reports whether no request runs at the endpoint

	mu      sync.Mutex
	callers map[string]int // late answers since the last timely one
	down    time.Time      // end of the pause; zero if the endpoint is not known to be down
	probing bool
}

func newLateness(idle func() bool) *lateness {
	return &lateness{idle: idle, callers: map[string]int{}}
}

// enter reports whether a caller may ask: immediately, after a probe, or not at all (refusal).
func (l *lateness) enter(caller string) (probes bool, refusal *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := time.Until(l.down)
	switch {
	case l.down.IsZero() && l.callers[caller] < lateLimit:
		return false, nil
	case !l.down.IsZero() && (left > 0 || l.probing):
		return false, l.refusal(left)
	case l.probing:
		return false, &Error{Class: ClassTimeout, Message: "the last answers to this caller were late; a probe is checking whether the endpoint answers", RetryAfter: time.Second}
	}
	l.probing = true
	return true, nil
}

func (l *lateness) refusal(left time.Duration) *Error {
	return &Error{
		Class: ClassBreakerOpen, Breaker: "open", RetryAfter: max(left, time.Second),
		Message: "the endpoint does not answer in time, not even a short probe",
	}
}

func (l *lateness) leave(caller string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil || ClassOf(err).Traits().Success:
		l.down = time.Time{}
		delete(l.callers, caller)
	case isLate(err):
		if len(l.callers) >= maxCallers {
			clear(l.callers)
		}
		l.callers[caller]++
	}
}

// isLate reports whether a request got no answer within its full time. A request cut short by the deadline
// of its question is not late.
func isLate(err error) bool {
	fail := asError(err)
	return fail != nil && fail.Class == ClassTimeout && (fail.whole || fail.Status != 0)
}

func (l *lateness) isDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.down.IsZero()
}

func (l *lateness) probe(ctx context.Context, once Completer, model string) error {
	ended := false
	defer func() {
		if !ended { // otherwise a panic would prevent further probes
			_ = l.recordProbe(nil, false)
		}
	}()
	alone := l.idle()
	_, err := once.Complete(ctx, probeOf(model))
	ended = true
	return l.recordProbe(err, alone && l.idle())
}

func (l *lateness) recordProbe(err error, alone bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probing = false
	overloaded := ClassOf(err) == ClassOverloaded
	switch {
	case err == nil || ClassOf(err).Traits().Success:
		l.down = time.Time{}
		return nil
	case alone && (isLate(err) || overloaded), !l.down.IsZero() && (isLate(err) || overloaded):
		l.down = time.Now().Add(breakerOpen)
		return l.refusal(breakerOpen)
	default:
		return err
	}
}

func probeOf(model string) Request {
	return Request{
		Model: model, System: "You are asked whether you can answer at all.",
		User:   `Answer with {"approved": true, "confidence": 1}.`,
		Shape:  `Answer with one JSON object: {"approved": true, "confidence": 1}.`,
		Schema: json.RawMessage(`{"type":"object","properties":{"approved":{"type":"boolean"},"confidence":{"type":"number"}},"required":["approved","confidence"],"additionalProperties":false}`),
	}
}

// withLateness makes callers with late answers wait for a probe. once performs the probe, without retries.
func withLateness(next, once Completer, l *lateness) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		probes, refusal := l.enter(req.Caller)
		if refusal != nil {
			return Reply{}, refusal
		}
		if probes {
			if err := l.probe(ctx, once, req.Model); err != nil {
				return Reply{}, err
			}
		}
		reply, err := next.Complete(ctx, req)
		l.leave(req.Caller, err)
		return reply, err
	})
}
