package mcpface

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
)

const (
	// defaultPoll is how often what a client subscribed to is looked at.
	defaultPoll = time.Second
	// mostWatched is how many subscriptions one connection may have: each costs a read.
	mostWatched = 200
)

// watch tells a client of changes to what it subscribed to, whoever made them: other
// processes write to the same store, so it looks.
type watch struct {
	// mark is what a resource looks like, in a text that changes when it does.
	mark  func(ctx context.Context, uri string) (string, error)
	write func(line []byte) error
	every time.Duration
	// turn is taken for every look at one resource: those of all clients together take one
	// processor at most. nil for a watch that has it for itself.
	turn chan struct{}

	mu    sync.Mutex
	subs  map[subscription]*sight
	added chan struct{} // has one element after a subscription was added
}

// subscription is a resource, and the id of the request that it belongs to: nil for
// clients that subscribe one by one.
type subscription struct {
	stream any
	uri    string
}

// sight is what a subscription last looked like. Nothing is announced at the first look
// after it was added: the client hears first that it is subscribed.
type sight struct {
	mark string
	seen bool
}

func newWatch(every time.Duration, mark func(context.Context, string) (string, error), write func([]byte) error) *watch {
	return &watch{mark: mark, write: write, every: every, subs: map[subscription]*sight{}, added: make(chan struct{}, 1)}
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
	mark, err := w.mark(ctx, uri)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := subscription{stream, uri}
	if len(w.subs) >= mostWatched || w.subs[key] != nil {
		return
	}
	w.subs[key] = &sight{mark: mark}
	select {
	case w.added <- struct{}{}:
	default:
	}
}

func (w *watch) remove(stream any, uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subs, subscription{stream, uri})
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
}

// restful is how many times as long as a look took, waiting for turns included, it is
// until the next one: however much is subscribed to, looking takes a part of a processor.
const restful = 4

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	wait := w.every
	for {
		var next <-chan time.Time // never, while nothing is subscribed to
		if w.watched() > 0 {
			next = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-w.added:
		case <-next:
			began := time.Now()
			w.look(ctx)
			wait = max(w.every, restful*time.Since(began))
		}
	}
}

// again has everything announced once more: what was written to a connection that broke
// may not have arrived.
func (w *watch) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, last := range w.subs {
		*last = sight{seen: true}
	}
}

func (w *watch) watched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.subs)
}

// look announces what has changed.
func (w *watch) look(ctx context.Context) {
	w.mu.Lock()
	uris := map[string]string{}
	for key := range w.subs {
		uris[key.uri] = ""
	}
	w.mu.Unlock()
	for uri := range uris {
		mark, err := w.markInTurn(ctx, uri)
		if err != nil { // it may be readable again the next time
			delete(uris, uri)
			continue
		}
		uris[uri] = mark
	}
	for _, line := range w.changed(uris) {
		if w.write(line) != nil {
			return // whoever serves the connection knows
		}
	}
}

// markInTurn is mark, not at the same time as those of other clients.
func (w *watch) markInTurn(ctx context.Context, uri string) (string, error) {
	if w.turn != nil {
		select {
		case w.turn <- struct{}{}:
			defer func() { <-w.turn }()
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return w.mark(ctx, uri)
}

// changed takes what resources look like now and returns what is to be said of it.
func (w *watch) changed(marks map[string]string) [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines [][]byte
	for key, last := range w.subs {
		mark, ok := marks[key.uri]
		if !ok {
			continue
		}
		if !last.seen {
			last.seen = true
			continue
		}
		if mark != last.mark {
			last.mark = mark
			lines = append(lines, key.line())
		}
	}
	return lines
}

// line is the notification of a change.
func (s subscription) line() []byte {
	params := map[string]any{"uri": s.uri}
	if s.stream != nil {
		params["_meta"] = map[string]any{mcp.MetaKeySubscriptionID: s.stream}
	}
	return append(encode(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "method": mcp.MethodNotificationResourceUpdated, "params": params}), '\n')
}

// mark is what a resource looks like to the client; an error for what is not there,
// and for what announces no changes.
func (f *Face) mark(ctx context.Context, uri string) (mark string, err error) {
	defer caught(&err)
	kind, _, _ := strings.Cut(strings.TrimPrefix(uri, scheme), "/")
	id := subject(uri)
	switch {
	case id == "" || !strings.HasPrefix(uri, scheme) || !followed(uri):
	case kind == "instances":
		s, err := f.cfg.Engine.Status(ctx, callerOf(ctx), id)
		if err != nil {
			return "", err //nolint:wrapcheck // explained by the caller
		}
		parts := []any{s.Seq}
		for _, r := range s.Reviews { // time alone can end one
			parts = append(parts, r.ID, r.Status, r.Priority)
		}
		return fmt.Sprintln(parts...), nil
	case kind == "reviews" && f.cfg.Reviews:
		r, err := f.cfg.Engine.Review(ctx, callerOf(ctx), id)
		if err != nil {
			return "", err //nolint:wrapcheck // explained by the caller
		}
		return fmt.Sprintln(r.Position.Seq, r.Status, r.Priority), nil
	}
	return "", &engine.Error{
		Code: engine.CodeInvalidArgument, Path: "/uri", Message: fmt.Sprintf("The resource %.200q announces no changes.", uri),
		Hint: "An instance (workflow://instances/{id}), its history, its diagram and a review do.",
	}
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
