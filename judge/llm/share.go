package llm

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// withSharing lets callers with the same question at the same time wait for one
// call. The call belongs to none of them: it goes on when the one who began it
// leaves, until a deadline of its own. That is a little before the callers' own, so
// that they learn what happened to the call and not only that their time is over.
func withSharing(next Completer, limit time.Duration) Completer {
	s := &sharing{calls: map[string]*sharedCall{}}
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Key == "" {
			return next.Complete(ctx, req)
		}
		call, began := s.join(keyOf(req, ""))
		if began {
			go s.run(context.WithoutCancel(ctx), call, next, req, limit-limit/100)
		}
		select {
		case <-call.done:
		case <-ctx.Done():
			return Reply{}, contextError(ctx)
		}
		if call.panicked != nil {
			panic(call.panicked) // where somebody can recover from it, as without sharing
		}
		reply := call.reply.clone()
		reply.Shared = !began && call.err == nil
		return reply, call.err
	})
}

type sharing struct {
	mu    sync.Mutex
	calls map[string]*sharedCall
}

type sharedCall struct {
	key  string
	done chan struct{}
	// Set before done is closed.
	reply    Reply
	err      error
	panicked any
}

// join returns the call under way for a key, or begins one.
func (s *sharing) join(key string) (call *sharedCall, began bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call, ok := s.calls[key]; ok {
		return call, false
	}
	call = &sharedCall{key: key, done: make(chan struct{})}
	s.calls[key] = call
	return call, true
}

func (s *sharing) run(ctx context.Context, call *sharedCall, next Completer, req Request, limit time.Duration) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, tooLate(limit))
	defer cancel()
	call.err = tooLate(limit) // until it has ended otherwise
	defer func() {
		if p := recover(); p != nil { // alone in its goroutine it would end the process
			call.panicked = fmt.Sprintf("%v\n\n%s", p, debug.Stack())
		}
		s.mu.Lock()
		delete(s.calls, call.key)
		s.mu.Unlock()
		close(call.done)
	}()
	reply, err := next.Complete(ctx, req)
	if err != nil && isContext(err) {
		err = tooLate(limit)
	}
	call.reply, call.err = reply, err
}
