package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/module"
)

const (
	// renderInterval is the least time between two renderings of a page.
	renderInterval = 250 * time.Millisecond
	// refreshInterval is how often a page is rendered without an event: warnings change without one.
	refreshInterval = 15 * time.Second
	// retryInterval is the time between two tries to read the events, while that fails.
	retryInterval = time.Second
	// sessionInterval is how often a stream checks that its session has not ended.
	sessionInterval = 5 * time.Second
	// streamLife is how long a stream lasts; the browser then connects again.
	streamLife = 15 * time.Minute
	// writeTimeout limits each write to a stream.
	writeTimeout = 10 * time.Second
)

// topicKey identifies what visitors of equal rights see at one address.
type topicKey struct {
	who     engine.Principal
	address string
}

// topics are the pages that are open in browsers. Visitors with equal rights share the renderings of a page.
type topics struct {
	console *console

	mu   sync.Mutex
	open map[topicKey]*topic
}

// topic renders a page again when there are new events, until its last stream has ended.
type topic struct {
	key    topicKey
	stop   context.CancelFunc
	ended  chan struct{}
	joined int // guarded by topics.mu

	mu       sync.Mutex
	position int64
	sent     map[string]template.HTML // the regions of the last rendering; nil before the first
	gone     bool                     // the page can no longer be shown
	changed  chan struct{}            // closed at the next change
}

// update is the content of a region, as the script of the page gets it.
type update struct {
	ID   string        `json:"id"`
	HTML template.HTML `json:"html"`
}

// serve sends the updates of a page until the visitor leaves.
func (all *topics) serve(w http.ResponseWriter, r *http.Request, p *page) {
	c, s, who := all.console, sessionOf(r), mustIdentity(r)
	after, err := strconv.ParseInt(firstOf(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")), 10, 64)
	if err != nil || after < 0 {
		http.Error(w, "The position is missing.", http.StatusBadRequest)
		return
	}
	leave, ok := c.host.AcquireStream(who.ID)
	if !ok {
		http.Error(w, "You have too many open pages.", http.StatusTooManyRequests)
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), streamLife)
	defer cancel()
	t, leaveTopic := all.join(p, c.visit(r), who.Principal, r, after)
	defer leaveTopic()
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // that of ordinary requests must not end a stream
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	send := func(text string) bool {
		_ = out.SetWriteDeadline(now().Add(writeTimeout))
		_, err := w.Write([]byte(text)) //nolint:gosec // events, escaped by JSON
		return err == nil && out.Flush() == nil
	}
	all.stream(ctx, s, t, after, send)
}

// stream sends what differs from what this visitor has, until ctx ends.
func (all *topics) stream(ctx context.Context, s *session, t *topic, after int64, send func(string) bool) {
	check := time.NewTicker(sessionInterval)
	defer check.Stop()
	have := map[string]template.HTML{}
	if !send("retry: 1000\nid: " + strconv.FormatInt(after, 10) + "\n\n") {
		return
	}
	for {
		regions, position, gone, changed := t.look()
		var text strings.Builder
		for id, html := range regions {
			if have[id] == html {
				continue
			}
			have[id] = html
			data, _ := json.Marshal(update{id, html}) //nolint:errchkjson // strings only
			text.WriteString("event: region\ndata: " + strings.ReplaceAll(string(data), all.console.csrf, s.csrf) + "\n\n")
		}
		if text.Len() > 0 { // the position comes last, so that a reader that lost the rest continues before all of them
			text.WriteString("event: position\nid: " + strconv.FormatInt(position, 10) + "\ndata: {}\n\n")
		}
		switch {
		case gone:
			send("event: gone\ndata: {}\n\n")
			return
		case text.Len() > 0 && !send(text.String()):
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-listen.Draining(ctx):
			return
		case <-changed:
		case <-check.C:
			if all.console.sessions.find(s.id) == nil || errors.Is(all.console.check(ctx, s), errSessionEnded) {
				send("event: ended\ndata: {}\n\n")
				return
			}
			if !send(": still here\n\n") {
				return
			}
		}
	}
}

// look returns the present regions; changed is closed when they are no longer present.
func (t *topic) look() (regions map[string]template.HTML, position int64, gone bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent, t.position, t.gone, t.changed
}

// join returns the topic of a page, which is current from after on.
func (all *topics) join(p *page, v module.Visit, who engine.Principal, r *http.Request, after int64) (*topic, func()) {
	query := r.URL.Query()
	query.Del("after")
	v.Values = query
	key := topicKey{who, pageOf(r)}
	if text := query.Encode(); text != "" {
		key.address += "?" + text
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	t := all.open[key]
	if t == nil || t.isAhead(after) {
		// A visitor that slept gets a topic of its own past; the others keep theirs.
		ctx, stop := context.WithCancel(context.WithoutCancel(r.Context()))
		t = &topic{key: key, stop: stop, ended: make(chan struct{}), position: after, changed: make(chan struct{})}
		all.open[key] = t
		v.Path = fixedPath(r, p)
		go func() {
			defer close(t.ended)
			t.run(ctx, all.console, p, v)
		}()
	}
	t.joined++
	return t, func() {
		if all.leave(t) {
			t.stop()
			<-t.ended
		}
	}
}

// pageOf returns the address of the page that a stream belongs to, without a query.
func pageOf(r *http.Request) string {
	page := strings.TrimSuffix(r.URL.EscapedPath(), "-/live")
	if page != base {
		page = strings.TrimSuffix(page, "/")
	}
	return page
}

// leave reports whether the last stream of a topic has ended.
func (all *topics) leave(t *topic) (last bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if t.joined--; t.joined > 0 {
		return false
	}
	if all.open[t.key] == t {
		delete(all.open, t.key)
	}
	return true
}

// isAhead reports whether the topic has passed a position without a rendering that newcomers can get.
func (t *topic) isAhead(after int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent == nil && t.position > after
}

// fixedPath keeps the parts of an address, because a topic outlives the request.
func fixedPath(r *http.Request, p *page) func(string) string {
	values := map[string]string{}
	for part := range strings.SplitSeq(p.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			values[name] = r.PathValue(name)
		}
	}
	return func(name string) string { return values[name] }
}

// run renders the page again after each event that it follows, and every refreshInterval.
func (t *topic) run(ctx context.Context, c *console, p *page, v module.Visit) {
	feed := v.Call.Engine.Feed()
	req := engine.TailRequest{}
	if p.Follow != nil {
		req = p.Follow(v)
	}
	req.After = t.position
	follower := feed.Follow(req.After)
	defer follower.Unfollow()
	refresh := time.NewTicker(refreshInterval)
	defer refresh.Stop()
	for {
		changed := follower.Changed()
		events, err := readAll(ctx, feed, t.key.who, &req)
		if isUnknown(err) {
			t.publish(nil, req.After, true)
			return
		}
		if err != nil { // a busy store, or one that is away for a while
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryInterval):
			}
			continue
		}
		follower.MarkSent(req.After)
		if events {
			t.render(ctx, c, p, v, req.After)
			select { // at most one rendering per interval
			case <-ctx.Done():
				return
			case <-time.After(renderInterval):
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-refresh.C:
			t.render(ctx, c, p, v, req.After)
		}
	}
}

// readAll reads to the end of the feed, and reports whether there was an event.
func readAll(ctx context.Context, feed *engine.Feed, who engine.Principal, req *engine.TailRequest) (events bool, err error) {
	for {
		page, err := feed.Page(ctx, who, *req)
		if err != nil {
			return false, err //nolint:wrapcheck // the page can no longer be shown
		}
		events = events || len(page.Items) > 0
		req.After = page.Next
		if !page.More {
			return events, nil
		}
	}
}

func (t *topic) render(ctx context.Context, c *console, p *page, v module.Visit, position int64) {
	regions, _, err := c.render(ctx, p, v, t.key.address, pageState{})
	if err != nil {
		if ctx.Err() == nil {
			t.publish(nil, position, isUnknown(err))
		}
		return
	}
	next := map[string]template.HTML{}
	for _, r := range regions {
		next[r.ID] = r.HTML
	}
	t.publish(next, position, false)
}

// publish wakes the streams. Without regions, they keep what they have.
func (t *topic) publish(regions map[string]template.HTML, position int64, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if regions != nil {
		t.sent = regions
	}
	t.position, t.gone = position, gone
	close(t.changed)
	t.changed = make(chan struct{})
}

func mustIdentity(r *http.Request) auth.Identity {
	id, ok := auth.FromContext(r.Context())
	if !ok {
		panic(fmt.Sprintf("console: %s without an identity", r.URL.Path))
	}
	return id
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
