package llm

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// withChain asks the model that is named, and others when it cannot be had. An
// answer ends the chain, also one that rejects; so does a failure that the case can
// bring about: nobody may shop for a model that says yes.
func withChain(models map[string]*backend, first string, fallbacks []string) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Model == "" {
			req.Model = first
		}
		asked, ok := models[req.Model]
		if !ok {
			return Reply{}, &Error{Class: ClassConfig, Message: fmt.Sprintf("no model named %.60q is configured", req.Model), Advice: "name a model that is configured, or none"}
		}
		line := []*backend{asked}
		for _, name := range fallbacks {
			if name != req.Model {
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
			failed = append(failed, fail.ofModel(b.Name))
			if !fail.Class.Traits().Chain || ctx.Err() != nil {
				break
			}
		}
		return Reply{}, joinErrors(failed)
	})
}

// completeWithin asks a model so that there is time left for those behind it: one that hangs
// may use up its share of the time that is left. Where that is not enough for one
// attempt it gets more, up to three quarters, for else a slow model could never
// answer because another stands behind it.
func (b *backend) completeWithin(parent context.Context, req Request, models int) (Reply, error) {
	deadline, ok := parent.Deadline()
	if !ok || models < 2 {
		return b.stack.Complete(parent, req)
	}
	left := time.Until(deadline)
	share := max(left/time.Duration(models), min(b.attempt, left*3/4))
	late := &Error{Class: ClassTimeout, Message: fmt.Sprintf("no judgement within %v, its share of the time", share.Round(time.Millisecond))}
	return completeBefore(parent, b.stack, req, share, late)
}

// ofModel says whose failure it was, where that is not known yet.
func (e *Error) ofModel(model string) *Error {
	if e.Model != "" {
		return e
	}
	named := *e
	named.Model = model
	return &named
}

// joinErrors is what several models' failures come to: one that the case may have
// caused if there is one, else one that is no outage, else the first that says what
// happened and not only that nobody was asked; its message names the others. All calls
// count, and the soonest return.
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

// errorWeight orders failures by which of them counts where several models failed.
func errorWeight(e *Error) int {
	switch {
	case e.Class.Traits().FromCase:
		return 3
	case e.IsBusy():
		return 2
	case notAsked(e.Class):
		return 0
	}
	return 1
}

// notAsked reports whether a class only says that the endpoint was left alone.
func notAsked(c Class) bool { return c == ClassBreakerOpen || c == ClassNotBefore }

// withDeadline bounds the whole of a question. When this clock ends it, that is a
// failure of the endpoint (or of what was done so far); when the caller's own context
// ends, that is returned as it is.
func withDeadline(next Completer, limit time.Duration) Completer {
	return CompleterFunc(func(parent context.Context, req Request) (Reply, error) {
		if err := parent.Err(); err != nil {
			return Reply{}, err
		}
		return completeBefore(parent, next, req, limit, tooLate(limit))
	})
}

// completeBefore asks with a time limit of our own, which late describes. A context of
// the caller's that ends is returned as it is.
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

func tooLate(limit time.Duration) *Error {
	return &Error{Class: ClassTimeout, Message: fmt.Sprintf("no judgement within %v", limit), Advice: "use a faster model, let it think less, or allow more time"}
}

// withAttempt bounds one HTTP request.
func withAttempt(next Completer, limit time.Duration) Completer {
	return CompleterFunc(func(parent context.Context, req Request) (Reply, error) {
		late := &Error{Class: ClassTimeout, Message: fmt.Sprintf("no answer within %v", limit), Advice: "use a faster model, or let it think less", whole: true}
		reply, err := completeBefore(parent, next, req, limit, late)
		if err == error(late) { //nolint:errorlint // only this one, made here, has no call counted yet
			failed := *late
			failed.Calls = 1
			return Reply{}, &failed
		}
		return reply, err
	})
}
