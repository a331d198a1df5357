package llm

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// withChain asks the named model, then the fallbacks while models are unavailable. Any answer ends the
// chain, even a rejection. So does a failure that the case can cause. Otherwise callers could shop for a
// model that approves.
func withChain(models map[string]*backend, first string, fallbacks []string) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		req.Model = cmp.Or(req.Model, first)
		model, ok := models[req.Model]
		if !ok {
			return Reply{}, &Error{Class: ClassConfig, Message: fmt.Sprintf("no model named %.60q is configured", req.Model), Advice: "name a configured model, or none for the default"}
		}
		line := []*backend{model}
		for _, name := range fallbacks {
			if name != req.Model && !req.Alone {
				line = append(line, models[name])
			}
		}
		var failed []*Error
		for i, b := range line {
			req.Model = b.Name
			reply, err := b.completeWithin(ctx, req, len(line)-i)
			if err == nil {
				for _, f := range failed {
					reply.Calls += f.Calls
				}
				return reply, nil
			}
			fail := asError(err)
			if fail == nil {
				return Reply{}, err
			}
			failed = append(failed, fail.withChange(func(e *Error) { e.Model = cmp.Or(e.Model, b.Name) }))
			if !fail.Class.Traits().Chain || ctx.Err() != nil {
				break
			}
		}
		return Reply{}, joinErrors(failed)
	})
}

// completeWithin leaves time for the models that follow. A model gets its share of the remaining time, or
// its timeout if that is longer, but then at most three quarters.
func (b *backend) completeWithin(parent context.Context, req Request, models int) (Reply, error) {
	deadline, ok := parent.Deadline()
	if !ok || models < 2 {
		return b.stack.Complete(parent, req)
	}
	left := time.Until(deadline)
	share := max(left/time.Duration(models), min(b.Timeout, left*3/4))
	late := &Error{Class: ClassTimeout, Message: fmt.Sprintf("no judgement within %v, its share of the time", share.Round(time.Millisecond))}
	return completeBefore(parent, b.stack, req, share, late)
}

// joinErrors returns one error for several. It prefers a failure that the case may have caused, then a busy
// one, then the first failure of a model that was asked. The message names the other models, Calls is the
// sum, and RetryAfter is the earliest.
func joinErrors(all []*Error) *Error {
	first := all[0]
	for _, e := range all[1:] {
		if errorWeight(e) > errorWeight(first) {
			first = e
		}
	}
	best := *first
	best.Calls, best.RetryAfter = 0, 0
	var others []string
	for _, e := range all {
		if e != first {
			others = append(others, e.Model+" "+string(e.Class))
		}
		best.Calls += e.Calls
		if e.RetryAfter > 0 && (best.RetryAfter == 0 || e.RetryAfter < best.RetryAfter) {
			best.RetryAfter = e.RetryAfter
		}
	}
	if len(others) > 0 {
		best.Message += " (also asked: " + strings.Join(others, ", ") + ")"
	}
	return &best
}

func errorWeight(e *Error) int {
	switch {
	case e.Class.Traits().FromCase:
		return 3
	case e.IsBusy():
		return 2
	case e.Class == ClassBreakerOpen || e.Class == ClassNotBefore:
		return 0
	}
	return 1
}

// withDeadline limits the time of a whole question. When the limit ends a question, that counts as a
// failure of the endpoint. If the caller ended its context, the context's error is returned unchanged.
func withDeadline(next Completer, limit time.Duration) Completer {
	return CompleterFunc(func(parent context.Context, req Request) (Reply, error) {
		if err := parent.Err(); err != nil {
			return Reply{}, err
		}
		return completeBefore(parent, next, req, req.timeOf(limit), deadlineError(limit))
	})
}

// timeOf returns the remaining time of the question's decision.
func (r Request) timeOf(limit time.Duration) time.Duration {
	if r.Began.IsZero() {
		return limit
	}
	return max(limit-time.Since(r.Began), 0)
}

// completeBefore asks with a time limit and returns late when it expires. If the caller ended its context,
// the context's error is returned unchanged.
func completeBefore(parent context.Context, next Completer, req Request, limit time.Duration, late *Error) (Reply, error) {
	ctx, cancel := context.WithTimeoutCause(parent, limit, late)
	defer cancel()
	reply, err := next.Complete(ctx, req)
	switch {
	case err == nil || !isContext(err):
		return reply, err
	case parent.Err() != nil:
		return Reply{}, parent.Err()
	}
	return Reply{}, late
}

func deadlineError(limit time.Duration) *Error {
	return &Error{Class: ClassTimeout, Message: fmt.Sprintf("no judgement within %v", limit)}
}

// withAttempt limits one request to timeout; 0 means the question's remaining time. A request that times
// out after at least whole is marked as such (Error.whole).
func withAttempt(next Completer, timeout, whole time.Duration) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		began := time.Now()
		var reply Reply
		var err error
		if timeout > 0 {
			reply, err = completeBefore(ctx, next, req, timeout, &Error{Class: ClassTimeout, Message: fmt.Sprintf("no answer within %v", timeout)})
		} else {
			reply, err = next.Complete(ctx, req)
		}
		if fail := asError(err); fail != nil && fail.Class == ClassTimeout && fail.Status == 0 {
			return Reply{}, fail.withChange(func(e *Error) { e.Calls, e.whole = 1, time.Since(began) >= whole })
		}
		return reply, err
	})
}
