package httpapi

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// tailer reads what is committed, once for all streams, while there is any stream. It is
// safe for concurrent use.
type tailer struct {
	open func() *engine.Feed
	poll time.Duration

	mu      sync.Mutex
	feed    *engine.Feed           // opened for the first stream
	streams map[*atomic.Int64]bool // the positions up to which each stream was sent all
	stop    context.CancelFunc     // ends the reading; nil while nothing is read
	done    chan struct{}          // closed when it has ended
	wake    chan struct{}          // closed when there may be more
}

func newTailer(open func() *engine.Feed, poll time.Duration) *tailer {
	return &tailer{open: open, poll: poll, streams: map[*atomic.Int64]bool{}, wake: make(chan struct{})}
}

// follow adds a stream that was sent everything up to a position, until leave is called.
func (t *tailer) follow(position int64) (at *atomic.Int64, leave func()) {
	at = &atomic.Int64{}
	at.Store(position)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams[at] = true
	if t.feed == nil {
		t.feed = t.open()
	}
	if t.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		before := t.done
		t.stop, t.done = cancel, make(chan struct{})
		go t.run(ctx, before, t.done)
	}
	return at, sync.OnceFunc(func() { t.leave(at) })
}

func (t *tailer) leave(at *atomic.Int64) {
	t.mu.Lock()
	delete(t.streams, at)
	done := t.done
	last := len(t.streams) == 0
	if last {
		t.stop()
		t.stop = nil
	}
	t.mu.Unlock()
	if last {
		<-done
	}
}

// run reads until ctx ends. before is closed when an earlier run has ended; nil without one.
func (t *tailer) run(ctx context.Context, before <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	if before != nil {
		<-before
	}
	defer t.feed.Forget()
	tick := time.NewTicker(t.poll)
	defer tick.Stop()
	for known := int64(-1); ; {
		last, err := t.feed.Read(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil || last != known { // an error ends the streams, which tell of it
			known = last
			t.announce()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// changed is closed when there may be more than there was before it was asked for.
func (t *tailer) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wake
}

func (t *tailer) announce() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.wake)
	t.wake = make(chan struct{})
}

// StreamLag is how far the stream is behind that is furthest behind.
func (h *Handler) StreamLag() engine.FeedLag {
	if h.tailer == nil {
		return engine.FeedLag{}
	}
	h.tailer.mu.Lock()
	behind, any := int64(0), false
	for at := range h.tailer.streams {
		if position := at.Load(); !any || position < behind {
			behind, any = position, true
		}
	}
	h.tailer.mu.Unlock()
	if !any {
		return engine.FeedLag{}
	}
	return h.tailer.feed.Lag(behind)
}
