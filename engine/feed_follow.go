package engine

import (
	"context"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// followers holds the followers of a feed. While there are any, the feed reads the store.
type followers struct {
	mu   sync.Mutex
	all  map[*Follower]bool
	stop context.CancelFunc // stops reading the store; nil while nothing is read
	done chan struct{}      // closed when the reading has ended
	wake chan struct{}      // closed when there may be new events
}

// Follower is one follower of a feed.
type Follower struct {
	feed *Feed
	sent atomic.Int64
}

// Follow registers a follower, for which the feed reads the store until Unfollow is called. The follower already
// has everything up to position; a negative position means that this is unknown.
func (f *Feed) Follow(position int64) *Follower {
	w := &Follower{feed: f}
	w.sent.Store(position)
	g := &f.followers
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all[w] = true
	if g.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		before := g.done
		g.stop, g.done = cancel, make(chan struct{})
		go f.run(ctx, before, g.done)
	}
	return w
}

// Unfollow unregisters the follower. For the last one, it ends the reading and waits until it has ended. Calling
// Unfollow again has no effect.
func (f *Follower) Unfollow() {
	g := &f.feed.followers
	g.mu.Lock()
	done := g.done
	last := g.all[f] && len(g.all) == 1
	delete(g.all, f)
	if last {
		g.stop()
		g.stop = nil
	}
	g.mu.Unlock()
	if last {
		<-done
	}
}

// MarkSent records the position up to which the follower has everything.
func (f *Follower) MarkSent(position int64) { f.sent.Store(position) }

// Changed returns a channel that is closed when events may have arrived since the call.
func (f *Follower) Changed() <-chan struct{} {
	g := &f.feed.followers
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wake
}

// run reads until ctx ends. before is closed when the previous run has ended; it is nil if there was none.
func (f *Feed) run(ctx context.Context, before <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	if before != nil {
		<-before
	}
	defer f.dropAll()
	tick := time.NewTicker(f.e.cfg.FeedPoll)
	defer tick.Stop()
	var wake <-chan struct{}
	if w, ok := f.e.cfg.Store.(store.Waker); ok {
		var stop func()
		wake, stop = w.Subscribe(ctx)
		defer stop()
	}
	for known := int64(-1); ; {
		last, err := f.readNew(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil || last != known { // followers learn of an error from their next page
			known = last
			f.followers.announce()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-wake:
		}
	}
}

func (f *followers) announce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.wake)
	f.wake = make(chan struct{})
}

// Change reports that something happened to an instance.
type Change struct {
	Instance string
	Seq      int64
	// ReviewID is the review that the event is about, if any. ReviewUntil is when that review expires if
	// it is still open; zero if it does not expire.
	ReviewID    string
	ReviewUntil time.Time
}

// Changes returns the changes after a position that p may see, and the position up to which they reach. It
// reads nothing from the store. known is false if the feed no longer holds some of them; then the caller
// must look up the objects that it follows.
func (f *Feed) Changes(p Principal, after int64) (changes []Change, next int64, known bool, err error) {
	if err := Authorize(p, RightRead); err != nil {
		return nil, after, true, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil || !f.started:
		return nil, after, true, f.err
	case after < f.after:
		return nil, f.last, false, nil
	}
	sees := sight{p, f.shared}
	for _, ev := range f.events[f.indexAfter(after):] {
		if !sees.showsEvent(TailRequest{}, ev.PlacedEvent) {
			continue
		}
		c := Change{Instance: ev.Event.Instance, Seq: ev.Event.Seq}
		if r := ev.Event.Review; r != nil {
			c.ReviewID = r.ID
			if r.Status == record.ReviewOpen {
				c.ReviewUntil = r.ExpiresAt
			}
		}
		changes = append(changes, c)
	}
	return changes, max(after, f.last), true, nil
}

func (f *Feed) indexAfter(position int64) int {
	return sort.Search(len(f.events), func(i int) bool { return f.events[i].Position > position })
}

// maxOverduePolls is how many FeedPoll intervals may pass between two reads before the time counts as lag.
const maxOverduePolls = 4

// FeedLag measures how far a follower is behind.
type FeedLag struct {
	Events int64         // positions between it and the last known one
	Time   time.Duration // age of the oldest of them; unread events count from the last complete read
}

// Lag returns the lag of the follower that is furthest behind.
func (f *Feed) Lag() FeedLag {
	position := int64(-1)
	f.followers.mu.Lock()
	for w := range f.followers.all {
		if sent := w.sent.Load(); sent >= 0 && (position < 0 || sent < position) {
			position = sent
		}
	}
	f.followers.mu.Unlock()
	if position < 0 {
		return FeedLag{}
	}
	return f.lagOf(position)
}

func (f *Feed) lagOf(position int64) FeedLag {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.started {
		return FeedLag{}
	}
	lag := FeedLag{Events: max(0, max(f.last, f.end)-position)}
	if i := f.indexAfter(position); position < f.last && i < len(f.events) {
		lag.Time = max(0, f.e.Now().Sub(f.events[i].Event.Time))
	}
	if unread := time.Since(f.lastRead); f.end > f.last || unread > maxOverduePolls*f.e.cfg.FeedPoll {
		lag.Time = max(lag.Time, unread)
	}
	return lag
}
