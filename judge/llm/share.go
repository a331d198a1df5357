package llm

import (
	"context"
	"sync"
	"time"
)

// withSharing lets callers with the same question at the same time wait for one
// call. The call belongs to none of them: it goes on when the one who began it
// leaves, until a deadline of its own.
func withSharing(next Completer, limit time.Duration) Completer {
	s := &sharing{calls: map[string]*sharedCall{}}
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if req.Key == "" {
			return next.Complete(ctx, req)
		}
		call, began := s.join(keyOf(req, ""))
		if began {
			go s.run(context.WithoutCancel(ctx), call, next, req, limit)
		}
		select {
		case <-call.done:
		case <-ctx.Done():
			return Reply{}, contextError(ctx)
		}
		reply := call.reply
		reply.Shared = !began && call.err == nil
		return reply, call.err
	})
}

type sharing struct {
	mu    sync.Mutex
	calls map[string]*sharedCall
}

type sharedCall struct {
	key   string
	done  chan struct{}
	reply Reply // set before done is closed
	err   error
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
	reply, err := next.Complete(ctx, req)
	if err != nil && isContext(err) {
		err = tooLate(limit)
	}
	call.reply, call.err = reply, err
	s.mu.Lock()
	delete(s.calls, call.key)
	s.mu.Unlock()
	close(call.done)
}
