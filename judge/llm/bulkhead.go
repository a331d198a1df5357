package llm

import (
	"context"
	"sync"
	"time"
)

// bulkhead bounds how many requests are under way at one host. One caller gets at
// most half of the places, so that whoever floods the gate does not keep everybody
// else from being judged.
type bulkhead struct {
	most, each int
	wait       time.Duration

	mu       sync.Mutex
	inside   int
	byCaller map[string]int
	left     chan struct{} // closed when somebody leaves, then made anew
}

func newBulkhead(most int, wait time.Duration) *bulkhead {
	return &bulkhead{most: most, each: max(1, most/2), wait: wait, byCaller: map[string]int{}, left: make(chan struct{})}
}

// try takes a place, or returns what to wait for.
func (b *bulkhead) try(caller string) (bool, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inside < b.most && b.byCaller[caller] < b.each {
		b.inside++
		b.byCaller[caller]++
		return true, nil
	}
	return false, b.left
}

func (b *bulkhead) leave(caller string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inside--
	if b.byCaller[caller]--; b.byCaller[caller] == 0 {
		delete(b.byCaller, caller)
	}
	close(b.left)
	b.left = make(chan struct{})
}

func (b *bulkhead) enter(ctx context.Context, caller string) error {
	timer := time.NewTimer(b.wait)
	defer timer.Stop()
	for {
		ok, left := b.try(caller)
		if ok {
			return nil
		}
		select {
		case <-left:
		case <-timer.C:
			return b.full()
		case <-ctx.Done():
			if err := contextError(ctx); ours(err) == nil {
				return err
			}
			return b.full() // our time is over, and the endpoint has nothing to do with it
		}
	}
}

func (b *bulkhead) full() *Error {
	return &Error{Class: ClassBusy, Message: "too many questions are under way at this endpoint", RetryAfter: b.wait}
}

// withBulkhead waits for a place, and not for long.
func withBulkhead(next Completer, b *bulkhead) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if err := b.enter(ctx, req.Caller); err != nil {
			return Reply{}, err
		}
		defer b.leave(req.Caller)
		return next.Complete(ctx, req)
	})
}
