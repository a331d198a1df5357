package llm

import (
	"context"
	"errors"
	"sync"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// background manages the one background request (Request.Background) of a host. The request gets a place
// only if one is free, and is cancelled as soon as a request for a decision finds none.
type background struct {
	mu   sync.Mutex
	stop context.CancelCauseFunc // nil if none is running
}

var errYielded = errors.New("a question of a decision needs the place")

// complete asks in the background, or fails with ClassBusy.
func (b *background) complete(ctx context.Context, next Completer, places *fairshare.Queue, req Request) (Reply, error) {
	busy := &Error{Class: ClassBusy, Message: "decisions need the places of this endpoint"}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	b.mu.Lock()
	taken := b.stop != nil
	if !taken {
		b.stop = stop
	}
	b.mu.Unlock()
	if taken {
		return Reply{}, busy
	}
	defer func() {
		b.mu.Lock()
		b.stop = nil
		b.mu.Unlock()
	}()
	release, ok := places.TryAcquire(req.Caller)
	if !ok {
		return Reply{}, busy
	}
	defer release()
	reply, err := next.Complete(ctx, req)
	if err != nil && errors.Is(context.Cause(ctx), errYielded) {
		return Reply{}, busy
	}
	return reply, err
}

// acquire takes a place for a decision's question. If none is free, it cancels the background request.
func (b *background) acquire(ctx context.Context, places *fairshare.Queue, caller string) (release func(), err error) {
	b.mu.Lock()
	stop := b.stop
	b.mu.Unlock()
	if stop != nil {
		if release, ok := places.TryAcquire(caller); ok {
			return release, nil
		}
		stop(errYielded)
	}
	return places.Acquire(ctx, caller)
}
