package mcpwire

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

// mostWatched is how many subscriptions one connection may have: each costs a read when a
// stream begins.
const mostWatched = 200

// watch tells a client of changes to its subscriptions, whoever made them. It follows
// the engine's feed, and reads nothing of the store where the feed tells what happened.
type watch struct {
	resources Resources // nil: nothing announces changes
	settle    time.Duration
	write     func(line []byte) error
	// turn is taken for every look at one resource: those of all clients together take one
	// processor at most. nil for a watch that has it for itself.
	turn chan struct{}

	mu     sync.Mutex
	subs   map[subscription]*followed
	rounds int           // how often news were noted
	poked  chan struct{} // has one element after subscriptions were added or removed
}

// subscription is a resource, and the id of the request that it belongs to: "" for clients
// that subscribe one by one.
type subscription struct{ stream, uri string }

// Sight is the position of a resource.
type Sight struct {
	Instance string
	Review   string               // the only one that counts; "" when all of the instance do
	Seq      int64                // of the last event that is known
	Until    map[string]time.Time // when open reviews expire, which changes them without an event
}

// followed is what is known of a resource.
type followed struct {
	Sight
	news  bool      // there is something to tell
	quiet time.Time // nothing is told before: the client hears first that it is subscribed
}

func newWatch(resources Resources, settle time.Duration, write func(line []byte) error) *watch {
	return &watch{resources: resources, settle: settle, write: write, subs: map[subscription]*followed{}, poked: make(chan struct{}, 1)}
}

// add subscribes, or says why a resource cannot be subscribed to.
func (w *watch) add(ctx context.Context, stream json.RawMessage, uri string) error {
	for w.resources != nil {
		w.mu.Lock()
		rounds, full := w.rounds, len(w.subs) >= mostWatched
		w.mu.Unlock()
		if full {
			return &engine.Error{
				Code: engine.CodeBusy, Path: "/uri", Message: fmt.Sprintf("%d resources are subscribed to already.", mostWatched),
				Hint: "Unsubscribe from resources that you no longer follow.",
			}
		}
		s, err := w.resources.Look(ctx, uri)
		if err != nil {
			return err //nolint:wrapcheck // explained by the caller
		}
		if w.insert(subscription{string(stream), uri}, &followed{Sight: s, quiet: time.Now().Add(w.settle)}, rounds) {
			return nil
		}
	}
	return nil
}

// insert is false when news were noted since a round: they may have been of this one.
func (w *watch) insert(key subscription, s *followed, rounds int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rounds != rounds {
		return false
	}
	if len(w.subs) < mostWatched && w.subs[key] == nil {
		w.subs[key] = s
		w.signal()
	}
	return true
}

func (w *watch) signal() {
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

func (w *watch) remove(stream json.RawMessage, uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subs, subscription{string(stream), uri})
	w.signal()
}

// announceAgain has everything announced once more: what was written to a connection that broke
// may not have arrived.
func (w *watch) announceAgain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.subs {
		s.news = true
	}
}

func (w *watch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.subs)
}

// run tells of changes until ctx ends.
func (w *watch) run(ctx context.Context) {
	for {
		if w.count() > 0 {
			w.follow(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.poked:
		}
	}
}

// finish announces what the feed has not told yet: nothing is watched after it.
func (w *watch) finish(ctx context.Context) {
	if w.count() == 0 {
		return
	}
	w.lookAtAll(ctx)
	w.mu.Lock()
	for _, s := range w.subs {
		s.quiet = time.Time{}
	}
	w.mu.Unlock()
	w.announce()
}

// restful is how many times as long as a look at everything took, waiting for turns
// included, it is until the next try when it failed.
const restful = 4

// follow tells of changes while anything is subscribed to.
func (w *watch) follow(ctx context.Context) {
	feed := w.resources.Feed()
	at := int64(-1)
	following := feed.Follow(at)
	defer following.Leave()
	for w.count() > 0 {
		changed := following.Changed()
		// A feed that fails passes nothing over, and wakes its followers once it works again.
		changes, next, known, _ := feed.Changes(CallerOf(ctx), at)
		w.note(changes)
		wait := time.Hour
		if !known {
			began := time.Now()
			if !w.lookAtAll(ctx) {
				next, changed, wait = at, nil, max(w.settle, restful*time.Since(began))
			}
		}
		at = next
		following.Sent(at)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-w.poked:
		case <-time.After(min(wait, w.announce())):
		}
	}
}

// note takes in what happened.
func (w *watch) note(changes []engine.Change) {
	by := map[string][]engine.Change{}
	for _, c := range changes {
		by[c.Instance] = append(by[c.Instance], c)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rounds++
	for _, s := range w.subs {
		for _, c := range by[s.Instance] {
			s.note(c)
		}
	}
}

func (s *followed) note(c engine.Change) {
	if c.Seq <= s.Seq {
		return
	}
	s.Seq, s.news = c.Seq, true
	switch {
	case c.ReviewID == "" || s.Review != "" && s.Review != c.ReviewID:
	case c.ReviewUntil.IsZero():
		delete(s.Until, c.ReviewID)
	default:
		s.Until[c.ReviewID] = c.ReviewUntil
	}
}

// lookAtAll compares everything with what is known of it. False asks to try again.
func (w *watch) lookAtAll(ctx context.Context) bool {
	w.mu.Lock()
	now := map[string]Sight{}
	for key := range w.subs {
		now[key.uri] = Sight{}
	}
	w.mu.Unlock()
	done := true
	for uri := range now {
		s, err := w.lookInTurn(ctx, uri)
		switch engine.CodeOf(err) {
		case engine.CodeUnknownInstance, engine.CodeUnknownReview: // nobody can follow it any more
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
			known.Seq, known.Until, known.news = s.Seq, maps.Clone(s.Until), true
		}
	}
	return done
}

// lookInTurn is look, not at the same time as those of other clients.
func (w *watch) lookInTurn(ctx context.Context, uri string) (Sight, error) {
	if w.turn != nil {
		select {
		case w.turn <- struct{}{}:
			defer func() { <-w.turn }()
		case <-ctx.Done():
			return Sight{}, ctx.Err()
		}
	}
	return w.resources.Look(ctx, uri) //nolint:wrapcheck // explained by the caller
}

// announce announces what is news, and returns how long it is until time alone makes more.
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
		case !s.news:
		case time.Now().Before(s.quiet):
			soonest(s.quiet)
		default:
			s.news = false
			lines = append(lines, key.line())
		}
	}
	w.mu.Unlock()
	for _, line := range lines {
		if w.write(line) != nil {
			break // the connection ends for it
		}
	}
	return time.Until(next)
}

// expire makes news of reviews that are past their time.
func (s *followed) expire() {
	for id, until := range s.Until {
		if !time.Now().Before(until) {
			delete(s.Until, id)
			s.news = true
		}
	}
}

// line is the notification of a change.
func (s subscription) line() []byte {
	var stream json.RawMessage
	if s.stream != "" {
		stream = json.RawMessage(s.stream)
	}
	return notificationLine(mcp.MethodNotificationResourceUpdated, stream, map[string]any{"uri": s.uri})
}
