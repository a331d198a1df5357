package llm

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sync/singleflight"
)

// sharedCall is what came of a call that several callers waited for.
type sharedCall struct {
	reply    Reply
	err      error
	panicked any
}

// withSharing lets callers with the same question at the same time wait for one call.
// The call belongs to none of them: it continues when the one that began it leaves,
// until a deadline of its own. That is slightly before the callers' own, so that they
// learn what happened to the call and not only that their time is over.
func withSharing(next Completer, limit time.Duration) Completer {
	var calls singleflight.Group
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Key == "" {
			return next.Complete(ctx, req)
		}
		began := false
		done := calls.DoChan(keyOf(req, ""), func() (any, error) {
			began = true
			return runShared(context.WithoutCancel(ctx), next, req, limit-limit/100), nil
		})
		var result singleflight.Result
		select {
		case result = <-done:
		case <-ctx.Done():
			return Reply{}, contextError(ctx)
		}
		call := result.Val.(*sharedCall) //nolint:forcetypeassert // the function returns nothing else
		if call.panicked != nil {
			panic(call.panicked) // where somebody can recover from it, as without sharing
		}
		reply := call.reply.clone()
		reply.Shared = !began && call.err == nil
		return reply, call.err
	})
}

func runShared(ctx context.Context, next Completer, req Request, limit time.Duration) (call *sharedCall) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, tooLate(limit))
	defer cancel()
	call = &sharedCall{}
	defer func() {
		if p := recover(); p != nil { // uncaught in this goroutine it would end the process
			call.panicked = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
		}
	}()
	if call.reply, call.err = next.Complete(ctx, req); call.err != nil && isContext(call.err) {
		call.err = tooLate(limit)
	}
	return call
}
