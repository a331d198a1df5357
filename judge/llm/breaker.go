package llm

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breaker leaves a model alone that fails again and again. Only what says something
// about the endpoint counts: a refusal of the model is a success of the endpoint, a
// caller who left says nothing, and what callers can bring about with many or slow
// questions does not count (see lateness).
type breaker struct {
	two    *gobreaker.TwoStepCircuitBreaker[any]
	open   time.Duration
	opened atomic.Int64 // when, in nanoseconds since 1970
}

func newBreaker(cfg Config) *breaker {
	b := &breaker{open: cfg.BreakerOpen}
	b.two = gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		MaxRequests: 1, Interval: cfg.BreakerWindow, BucketPeriod: cfg.BreakerWindow / 12, Timeout: cfg.BreakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			valid := c.TotalSuccesses + c.TotalFailures
			return int(c.ConsecutiveFailures) >= cfg.BreakerFailures ||
				int(valid) >= cfg.BreakerMin && float64(c.TotalFailures) >= cfg.BreakerShare*float64(valid)
		},
		// Callbacks run under the breaker's lock: nothing here may ask it anything.
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

// state is closed, half-open or open.
func (b *breaker) state() string { return b.two.State().String() }

// refusal is the error while the breaker lets nobody through.
func (b *breaker) refusal(err error) *Error {
	fail := &Error{
		Class: ClassBreakerOpen, Breaker: "open", RetryAfter: time.Second,
		Message: "the endpoint has failed again and again and is left alone for a while",
	}
	if errors.Is(err, gobreaker.ErrOpenState) {
		fail.RetryAfter = max(time.Until(time.Unix(0, b.opened.Load()).Add(b.open)), time.Millisecond)
		return fail
	}
	fail.Breaker, fail.Message = "half-open", "the endpoint has failed again and again; one call is finding out whether it is back"
	return fail
}

// withBreaker asks only while the breaker allows it. The outcome of a call counts
// when the call has ended, however that was.
func withBreaker(next Completer, b *breaker) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		state := b.state()
		done, err := b.two.Allow()
		if err != nil {
			return Reply{}, b.refusal(err)
		}
		ended := false
		defer func() {
			if !ended { // a panic below must not leave the probe out for ever
				done(&Error{Class: ClassUpstream})
			}
		}()
		reply, err := next.Complete(ctx, req)
		ended = true
		done(err)
		reply.Breaker = state
		if fail := asError(err); fail != nil && fail.Breaker == "" {
			signed := *fail
			signed.Breaker = state
			return Reply{}, &signed
		}
		return reply, err
	})
}

// withSecondLook stands behind the line for a place: whoever waited for a place may have been
// let through before those in front of him found the endpoint dead.
func withSecondLook(next Completer, b *breaker, g *notBefore) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if b.two.State() == gobreaker.StateOpen {
			return Reply{}, b.refusal(gobreaker.ErrOpenState)
		}
		if err := g.refusal(); err != nil {
			return Reply{}, err
		}
		return next.Complete(ctx, req)
	})
}
