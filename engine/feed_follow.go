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

// followers is who follows a feed. The feed is read while there is anybody.
type followers struct {
	mu   sync.Mutex
	all  map[*Follower]bool
	stop context.CancelFunc // ends the reading; nil while nothing is read
	done chan struct{}      // closed when it has ended
	wake chan struct{}      // closed when there may be more
}

// Follower is one of those who follow a feed.
type Follower struct {
	feed *Feed
	sent atomic.Int64
}

// Follow has the feed read what is committed, until Leave is called. The follower has
// everything up to a position; a negative one says that it does not know.
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

// Leave ends following, and the reading with the last follower. It does nothing the second
// time.
func (w *Follower) Leave() {
	g := &w.feed.followers
	g.mu.Lock()
	done := g.done
	last := g.all[w] && len(g.all) == 1
	delete(g.all, w)
	if last {
		g.stop()
		g.stop = nil
	}
	g.mu.Unlock()
	if last {
		<-done
	}
}

// Sent notes up to which position the follower has everything.
func (w *Follower) Sent(position int64) { w.sent.Store(position) }

// Changed is closed when there may be more than there was before it was asked for.
func (w *Follower) Changed() <-chan struct{} {
	g := &w.feed.followers
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wake
}

// run reads until ctx ends. before is closed when an earlier run has ended; nil without one.
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
		wake, stop = w.Wakes(ctx)
		defer stop()
	}
	for known := int64(-1); ; {
		last, err := f.readNew(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil || last != known { // pages tell of an error
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

func (g *followers) announce() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.wake)
	g.wake = make(chan struct{})
}

// Change says that something happened to an instance.
type Change struct {
	Instance string
	Seq      int64
	// ReviewID is the review that it is about, if any. ReviewUntil is when that one, still
	// open, expires; zero when it does not.
	ReviewID    string
	ReviewUntil time.Time
}

// Changes returns what happened behind a position, of what p may see, without reading
// anything, and the position up to which that is. known is false when the feed does not hold
// all of it: then the caller has to look for itself at what it follows.
func (f *Feed) Changes(p Principal, after int64) (changes []Change, next int64, known bool, err error) {
	if err := Authorize(p, RightRead); err != nil {
		return nil, after, true, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil || !f.begun:
		return nil, after, true, f.err
	case after < f.after:
		return nil, f.last, false, nil
	}
	sees := sight{p, f.shared}
	for _, ev := range f.events[f.indexBehind(after):] {
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

func (f *Feed) indexBehind(position int64) int {
	return sort.Search(len(f.events), func(i int) bool { return f.events[i].Position > position })
}

// overdueLooks is how many times FeedPoll may pass between two looks before the time counts as lag.
const overdueLooks = 4

// FeedLag is how far behind a follower is.
type FeedLag struct {
	Events int64         // positions up to the last one that is known
	Time   time.Duration // the age of the oldest of them; of one that was not read yet, since it cannot have been there
}

// Lag is how far behind the follower is that is furthest behind.
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
	if !f.begun {
		return FeedLag{}
	}
	lag := FeedLag{Events: max(0, max(f.last, f.end)-position)}
	if i := f.indexBehind(position); position < f.last && i < len(f.events) {
		lag.Time = max(0, f.e.Now().Sub(f.events[i].Event.Time))
	}
	if unread := time.Since(f.looked); f.end > f.last || unread > overdueLooks*f.e.cfg.FeedPoll {
		lag.Time = max(lag.Time, unread)
	}
	return lag
}
