package llm

import (
	"context"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// withPlace bounds how many requests run at one host, and gives one caller at most half
// of the places. A request waits in line as long as the question has time.
func withPlace(next Completer, places *fairshare.Queue) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		release, err := places.Acquire(ctx, req.Caller)
		if err == nil {
			defer release()
		}
		// A place often comes free in the instant in which the time of all who wait is up,
		// and a timer may be late.
		deadline, limited := ctx.Deadline()
		ended := ctx.Err() != nil
		switch {
		case ended && asError(contextError(ctx)) == nil:
			return Reply{}, contextError(ctx) // the caller left
		case ended || limited && !time.Now().Before(deadline) || errors.Is(err, fairshare.ErrBusy):
			return Reply{}, &Error{Class: ClassBusy, Message: "too many questions wait for this endpoint"}
		case err != nil:
			return Reply{}, err
		}
		return next.Complete(ctx, req)
	})
}
