package mcpface

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
)

const (
	// defaultSettle is how long a new subscription is quiet.
	defaultSettle = 500 * time.Millisecond
	// mostWatched is how many subscriptions one connection may have: each costs a read
	// when a stream begins.
	mostWatched = 200
)

// watch tells a client of changes to what it subscribed to, whoever made them. It follows
// the engine's feed, and reads nothing of the store where the feed tells what happened.
type watch struct {
	face  *Face // nil for a server in which nothing announces changes
	write func(line []byte) error
	// turn is taken for every look at one resource: those of all clients together take one
	// processor at most. nil for a watch that has it for itself.
	turn chan struct{}

	mu     sync.Mutex
	subs   map[subscription]*sight
	rounds int           // how often news were noted
	poked  chan struct{} // has one element after subscriptions were added or removed
}

// subscription is a resource, and the id of the request that it belongs to: nil for
// clients that subscribe one by one.
type subscription struct {
	stream any
	uri    string
}

// sight is what is known of a resource.
type sight struct {
	instance string
	review   string               // the only one that counts; "" when all of the instance do
	seq      int64                // of the last event that is known
	until    map[string]time.Time // when open reviews expire, which changes them without an event
	news     bool                 // there is something to tell
	quiet    time.Time            // nothing is told before: the client hears first that it is subscribed
}

func newWatch(face *Face, write func([]byte) error) *watch {
	return &watch{face: face, write: write, subs: map[subscription]*sight{}, poked: make(chan struct{}, 1)}
}

// checkLimit is an error when no more subscriptions can be added.
func (w *watch) checkLimit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.subs) < mostWatched {
		return nil
	}
	return &engine.Error{
		Code: engine.CodeBusy, Path: "/uri", Message: fmt.Sprintf("%d resources are subscribed to already.", mostWatched),
		Hint: "Unsubscribe from what you do not follow any more.",
	}
}

// add subscribes. What cannot be subscribed to was refused before, or is after.
func (w *watch) add(ctx context.Context, stream any, uri string) {
	for w.face != nil {
		w.mu.Lock()
		rounds := w.rounds
		w.mu.Unlock()
		s, err := w.face.look(ctx, uri)
		if err != nil {
			return
		}
		s.quiet = time.Now().Add(w.face.cfg.Settle)
		if w.insert(subscription{stream, uri}, s, rounds) {
			return
		}
	}
}

// insert is false when news were noted since a round: they may have been of this one.
func (w *watch) insert(key subscription, s *sight, rounds int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rounds != rounds {
		return false
	}
	if len(w.subs) < mostWatched && w.subs[key] == nil {
		w.subs[key] = s
		w.poke()
	}
	return true
}

func (w *watch) poke() {
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

func (w *watch) remove(stream any, uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subs, subscription{stream, uri})
	w.poke()
}

// end removes all that belong to a request.
func (w *watch) end(stream any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.subs {
		if key.stream == stream {
			delete(w.subs, key)
		}
	}
	w.poke()
}

// again has everything announced once more: what was written to a connection that broke
// may not have arrived.
func (w *watch) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.subs {
		s.news = true
	}
}

func (w *watch) watched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.subs)
}

// run tells of changes until ctx ends.
func (w *watch) run(ctx context.Context) {
	for {
		if w.watched() > 0 {
			w.follow(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.poked:
		}
	}
}

// restful is how many times as long as a look at everything took, waiting for turns
// included, it is until the next try when it failed.
const restful = 4

// follow tells of changes while anything is subscribed to.
func (w *watch) follow(ctx context.Context) {
	feed := w.face.cfg.Engine.Feed()
	at := int64(-1)
	following := feed.Follow(at)
	defer following.Leave()
	for w.watched() > 0 {
		changed := following.Changed()
		// A feed that fails passes nothing over, and says when it does not fail any more.
		changes, next, known, _ := feed.Changes(callerOf(ctx), at)
		w.note(changes)
		wait := time.Hour
		if !known {
			began := time.Now()
			if !w.lookAtAll(ctx) {
				next, changed, wait = at, nil, max(w.face.cfg.Settle, restful*time.Since(began))
			}
		}
		at = next
		following.Sent(at)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-w.poked:
		case <-time.After(min(wait, w.tell())):
		}
	}
}

// note takes in what happened.
func (w *watch) note(changes []engine.Change) {
	by := map[string][]engine.Change{}
	for _, c := range changes {
		by[c.WorkflowID] = append(by[c.WorkflowID], c)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rounds++
	for _, s := range w.subs {
		for _, c := range by[s.instance] {
			s.note(c)
		}
	}
}

func (s *sight) note(c engine.Change) {
	if c.Seq <= s.seq {
		return
	}
	s.seq, s.news = c.Seq, true
	switch {
	case c.ReviewID == "" || s.review != "" && s.review != c.ReviewID:
	case c.ReviewUntil.IsZero():
		delete(s.until, c.ReviewID)
	default:
		s.until[c.ReviewID] = c.ReviewUntil
	}
}

// lookAtAll compares everything with what is known of it. False asks to try again.
func (w *watch) lookAtAll(ctx context.Context) bool {
	w.mu.Lock()
	now := map[string]*sight{}
	for key := range w.subs {
		now[key.uri] = nil
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
		if s := now[key.uri]; s != nil && s.seq > known.seq {
			known.expire()
			known.seq, known.until, known.news = s.seq, s.until, true
		}
	}
	return done
}

// lookInTurn is look, not at the same time as those of other clients.
func (w *watch) lookInTurn(ctx context.Context, uri string) (*sight, error) {
	if w.turn != nil {
		select {
		case w.turn <- struct{}{}:
			defer func() { <-w.turn }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return w.face.look(ctx, uri)
}

// tell announces what is news, and returns how long it is until time alone makes more.
func (w *watch) tell() time.Duration {
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
		for _, until := range s.until {
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
			break // whoever serves the connection knows
		}
	}
	return time.Until(next)
}

// expire makes news of reviews that are past their time.
func (s *sight) expire() {
	for id, until := range s.until {
		if !time.Now().Before(until) {
			delete(s.until, id)
			s.news = true
		}
	}
}

// line is the notification of a change.
func (s subscription) line() []byte {
	params := map[string]any{"uri": s.uri}
	if s.stream != nil {
		params["_meta"] = map[string]any{mcp.MetaKeySubscriptionID: s.stream}
	}
	return append(encode(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "method": mcp.MethodNotificationResourceUpdated, "params": params}), '\n')
}

// look is what a resource looks like to the client; an error for what is not there, and
// for what announces no changes.
func (f *Face) look(ctx context.Context, uri string) (s *sight, err error) {
	defer caught(&err)
	kind, _, _ := strings.Cut(strings.TrimPrefix(uri, scheme), "/")
	id := subject(uri)
	s = &sight{until: map[string]time.Time{}}
	var reviews []engine.ReviewSummary
	switch {
	case id == "" || !strings.HasPrefix(uri, scheme) || !followed(uri):
	case kind == "instances":
		r, err := f.cfg.Engine.Status(ctx, callerOf(ctx), id)
		if err != nil {
			return nil, err //nolint:wrapcheck // explained by the caller
		}
		s.instance, s.seq, reviews = id, r.Seq, r.Reviews
	case kind == "reviews" && f.cfg.Reviews:
		r, err := f.cfg.Engine.Review(ctx, callerOf(ctx), id)
		if err != nil {
			return nil, err //nolint:wrapcheck // explained by the caller
		}
		s.instance, s.review, s.seq, reviews = r.Instance, id, r.Position.Seq, []engine.ReviewSummary{r.ReviewSummary}
	}
	if s.instance == "" {
		return nil, &engine.Error{
			Code: engine.CodeInvalidArgument, Path: "/uri", Message: fmt.Sprintf("The resource %.200q announces no changes.", uri),
			Hint: "An instance (workflow://instances/{id}), its history, its diagram and a review do.",
		}
	}
	for _, r := range reviews {
		if r.Status == record.ReviewOpen && time.Now().Before(r.ExpiresAt) {
			s.until[r.ID] = r.ExpiresAt
		}
	}
	return s, nil
}

// followed tells resources that are part of an instance from paths that are not there.
func followed(uri string) bool {
	segments := strings.Split(strings.TrimPrefix(uri, scheme), "/")
	switch len(segments) {
	case 2:
		return true
	case 3:
		return segments[0] == "instances" && (segments[2] == "history" || segments[2] == "diagram")
	default:
		return false
	}
}
