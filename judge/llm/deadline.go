package llm

import (
	"context"
	"fmt"
	"time"
)

// withDeadline bounds the whole of a question. When this clock ends it, that is a
// failure of the endpoint (or of what was done so far); when the caller's own context
// ends, that is returned as it is.
func withDeadline(next Completer, limit time.Duration) Completer {
	return CompleterFunc(func(parent context.Context, req Request) (Reply, error) {
		if err := parent.Err(); err != nil {
			return Reply{}, err
		}
		ctx, cancel := context.WithTimeoutCause(parent, limit, tooLate(limit))
		defer cancel()
		reply, err := next.Complete(ctx, req)
		if err == nil {
			return reply, nil
		}
		if perr := parent.Err(); perr != nil && isContext(err) {
			return Reply{}, perr
		}
		if isContext(err) {
			return Reply{}, tooLate(limit)
		}
		return Reply{}, err
	})
}

func tooLate(limit time.Duration) *Error {
	return &Error{Class: ClassTimeout, Message: fmt.Sprintf("no judgement within %v", limit), Advice: "use a faster model, let it think less, or allow more time"}
}

// withAttempt bounds one HTTP request.
func withAttempt(next Completer, limit time.Duration) Completer {
	return CompleterFunc(func(parent context.Context, req Request) (Reply, error) {
		late := &Error{Class: ClassTimeout, Message: fmt.Sprintf("no answer within %v", limit), Advice: "use a faster model, or let it think less", whole: true}
		ctx, cancel := context.WithTimeoutCause(parent, limit, late)
		defer cancel()
		reply, err := next.Complete(ctx, req)
		if err != nil && isContext(err) && parent.Err() == nil {
			failed := *late
			failed.Calls = 1
			return Reply{}, &failed
		}
		return reply, err
	})
}
