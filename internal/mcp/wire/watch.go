package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
)

// maxSubscriptions limits the subscriptions of one connection, since each costs a read when a stream starts.
const maxSubscriptions = 200

// watch notifies a client of changes to the resources that it subscribed to, regardless of who made them. It follows
// the engine's feed, and reads the store only if the feed cannot report what happened.
type watch struct {
	resources  Resources // nil if no resource announces changes
	settleTime time.Duration
	write      func(line []byte) error
	// checkLock serialises looks at resources across clients, so that together they use at most one processor. It is nil
	// if the watch is not shared.
	checkLock chan struct{}

	mu          sync.Mutex
	subs        map[subscription]*subscriptionState
	noteCount   int           // number of note calls
	subsChanged chan struct{} // holds one element after subscriptions changed
}

// subscription is a resource URI with the id of the request that subscribed to it. stream is "" for clients that
// subscribe to resources one by one.
type subscription struct{ stream, uri string }

// ResourcePosition is a snapshot of a resource's position.
type ResourcePosition struct {
	Instance string
	Review   string               // the only review that matters; "" if all reviews of the instance do
	Seq      int64                // of the last known event
	Until    map[string]time.Time // when open reviews expire, which changes them without an event
}

// subscriptionState is the known state of a subscribed resource.
type subscriptionState struct {
	ResourcePosition
	hasChanged bool      // a change is to be announced
	quietUntil time.Time // no announcement before this time: the client first learns that it is subscribed
}

func newWatch(resources Resources, settle time.Duration, write func(line []byte) error) *watch {
	return &watch{resources: resources, settleTime: settle, write: write, subs: map[subscription]*subscriptionState{}, subsChanged: make(chan struct{}, 1)}
}

// add subscribes to a resource, or returns an error that explains why it cannot.
func (w *watch) add(ctx context.Context, stream json.RawMessage, uri string) error {
	for w.resources != nil {
		w.mu.Lock()
		rounds, full := w.noteCount, len(w.subs) >= maxSubscriptions
		w.mu.Unlock()
		if full {
			return &engine.Error{
				Code: engine.CodeBusy, Path: "/uri", Message: fmt.Sprintf("%d resources are subscribed to already.", maxSubscriptions),
				Hint: "Unsubscribe from resources that you no longer follow.",
			}
		}
		s, err := w.resources.Look(ctx, uri)
		if err != nil {
			return err //nolint:wrapcheck // explained by the caller
		}
		if w.insert(subscription{string(stream), uri}, &subscriptionState{ResourcePosition: s, quietUntil: time.Now().Add(w.settleTime)}, rounds) {
			return nil
		}
	}
	return nil
}

// insert adds a subscription. It returns false if changes were noted since rounds, because they may concern this
// resource.
func (w *watch) insert(key subscription, s *subscriptionState, rounds int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noteCount != rounds {
		return false
	}
	if len(w.subs) < maxSubscriptions && w.subs[key] == nil {
		w.subs[key] = s
		w.signal()
	}
	return true
}

func (w *watch) signal() {
	select {
	case w.subsChanged <- struct{}{}:
	default:
	}
}

func (w *watch) remove(stream json.RawMessage, uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subs, subscription{string(stream), uri})
	w.signal()
}

// announceAgain marks every subscription as changed, because writes to a broken connection may be lost.
func (w *watch) announceAgain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.subs {
		s.hasChanged = true
	}
}

func (w *watch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.subs)
}

// run announces changes until ctx ends.
func (w *watch) run(ctx context.Context) {
	for {
		if w.count() > 0 {
			w.follow(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.subsChanged:
		}
	}
}

// finish announces changes that the feed has not reported yet. The watch must not be used afterwards.
func (w *watch) finish(ctx context.Context) {
	if w.count() == 0 {
		return
	}
	w.checkAll(ctx)
	w.mu.Lock()
	for _, s := range w.subs {
		s.quietUntil = time.Time{}
	}
	w.mu.Unlock()
	w.announce()
}

// retryFactor sets the delay before lookAtAll is retried after a failure: this many times as long as the attempt took,
// including the waits for turn.
const retryFactor = 4

// follow announces changes while there are subscriptions.
func (w *watch) follow(ctx context.Context) {
	feed := w.resources.Feed()
	at := int64(-1)
	following := feed.Follow(at)
	defer following.Unfollow()
	for w.count() > 0 {
		changed := following.Changed()
		// A failing feed skips nothing, and wakes its followers once it works again.
		changes, next, known, _ := feed.Changes(CallerOf(ctx), at)
		w.note(changes)
		wait := time.Hour
		if !known {
			began := time.Now()
			if !w.checkAll(ctx) {
				next, changed, wait = at, nil, max(w.settleTime, retryFactor*time.Since(began))
			}
		}
		at = next
		following.MarkSent(at)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-w.subsChanged:
		case <-time.After(min(wait, w.announce())):
		}
	}
}

// note records changes for the subscriptions that they concern.
func (w *watch) note(changes []engine.Change) {
	by := map[string][]engine.Change{}
	for _, c := range changes {
		by[c.Instance] = append(by[c.Instance], c)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteCount++
	for _, s := range w.subs {
		for _, c := range by[s.Instance] {
			s.note(c)
		}
	}
}

func (s *subscriptionState) note(c engine.Change) {
	if c.Seq <= s.Seq {
		return
	}
	s.Seq, s.hasChanged = c.Seq, true
	switch {
	case c.ReviewID == "" || s.Review != "" && s.Review != c.ReviewID:
	case c.ReviewUntil.IsZero():
		delete(s.Until, c.ReviewID)
	default:
		s.Until[c.ReviewID] = c.ReviewUntil
	}
}

// checkAll compares every resource with its known state. It returns false if the caller should retry.
func (w *watch) checkAll(ctx context.Context) bool {
	w.mu.Lock()
	now := map[string]ResourcePosition{}
	for key := range w.subs {
		now[key.uri] = ResourcePosition{}
	}
	w.mu.Unlock()
	done := true
	for uri := range now {
		s, err := w.checkResource(ctx, uri)
		switch engine.CodeOf(err) {
		case engine.CodeUnknownInstance, engine.CodeUnknownReview: // the resource no longer exists, so there is nothing to follow
		default:
			done = done && err == nil
		}
		now[uri] = s
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, known := range w.subs {
		if s := now[key.uri]; s.Seq > known.Seq {
			known.expire()
			known.Seq, known.Until, known.hasChanged = s.Seq, maps.Clone(s.Until), true
		}
	}
	return done
}

// checkResource looks at one resource. Clients that share turn look one at a time.
func (w *watch) checkResource(ctx context.Context, uri string) (ResourcePosition, error) {
	if w.checkLock != nil {
		select {
		case w.checkLock <- struct{}{}:
			defer func() { <-w.checkLock }()
		case <-ctx.Done():
			return ResourcePosition{}, ctx.Err()
		}
	}
	return w.resources.Look(ctx, uri) //nolint:wrapcheck // explained by the caller
}

// announce announces pending changes. It returns the time until the next change without an event: an expiry, or the end
// of a subscription's quiet period.
func (w *watch) announce() time.Duration {
	w.mu.Lock()
	var lines [][]byte
	next := time.Now().Add(time.Hour)
	soonest := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for key, s := range w.subs {
		s.expire()
		for _, until := range s.Until {
			soonest(until)
		}
		switch {
		case !s.hasChanged:
		case time.Now().Before(s.quietUntil):
			soonest(s.quietUntil)
		default:
			s.hasChanged = false
			lines = append(lines, key.line())
		}
	}
	w.mu.Unlock()
	for _, line := range lines {
		if w.write(line) != nil {
			break // a failed write also ends the connection
		}
	}
	return time.Until(next)
}

// expire marks the resource as changed for each open review that has expired.
func (s *subscriptionState) expire() {
	for id, until := range s.Until {
		if !time.Now().Before(until) {
			delete(s.Until, id)
			s.hasChanged = true
		}
	}
}

// line encodes the change notification.
func (s subscription) line() []byte {
	var stream json.RawMessage
	if s.stream != "" {
		stream = json.RawMessage(s.stream)
	}
	return notificationLine(mcp.MethodNotificationResourceUpdated, stream, map[string]any{"uri": s.uri})
}
