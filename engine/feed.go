package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Limits of a feed.
const (
	// maxFeedBytes limits the recorded bytes of the events that a feed holds, and maxFeedEvents their
	// number.
	maxFeedBytes  = 8 << 20
	maxFeedEvents = 10_000
	// feedPageBytes limits a page: a reader that stalls holds this much memory.
	feedPageBytes = 256 << 10
	// feedPage is the maximum number of events in a page.
	feedPage = maxHistoryPage
)

// Feed distributes committed events to many streams. While it has followers, each new event is read once,
// and rendered once for all viewers who see the same. It holds the newest events. A stream that has fallen
// behind them reads pages from the store, as its own bulk reads. It is safe for concurrent use.
type Feed struct {
	e *Engine

	followers followers
	reading   sync.Mutex // held while the store is read

	mu        sync.Mutex
	started   bool
	after     int64 // events contains all events after this position, up to last
	last      int64
	end       int64     // the store's last position as of the last query
	lastRead  time.Time // start of the last query whose events were all read
	bytes     int
	events    []*feedEvent
	instances map[string]*feedInstance // instances of the held events
	shared    []string                 // the workflows whose instances agents share, as of the last readNew
	err       error                    // of the last readNew
}

// feedInstance holds facts about an instance with held events, so that it need not be loaded.
type feedInstance struct {
	heldEvents int // number of held events; guarded by Feed.mu
	moves      atomic.Int64
	version    atomic.Int64 // the present version of its definition
}

type feedEvent struct {
	store.PlacedEvent
	size int
	now  *feedInstance

	mu       sync.Mutex // held while it is rendered
	rendered map[viewClass]rendering
}

// rendering is an event as JSON. It depends on the present version of the definition. If anything is sensitive,
// it also depends on the instance's present values, which change with its moves.
type rendering struct {
	version, moves int64
	sensitive      bool
	json           []byte
}

// viewClass holds everything about a caller that the view of an event depends on: two callers of one class
// see the same.
type viewClass struct {
	role Role
	owns bool // owns the instance
}

// FeedItem is one event of a page.
type FeedItem struct {
	Position int64
	Kind     record.Kind
	// JSON is the encoded EventView. It is shared, so callers must not change it.
	JSON []byte
}

// FeedPage holds the events after a position.
type FeedPage struct {
	Items []FeedItem
	// Next is the After of the next request.
	Next int64
	// More reports whether more events are available already.
	More bool
}

// Feed returns the feed that is shared by all followers in this process.
func (e *Engine) Feed() *Feed { return e.feed }

func newFeed(e *Engine) *Feed {
	return &Feed{e: e, followers: followers{all: map[*Follower]bool{}, wake: make(chan struct{})}}
}

// readNew reads the events committed since the last call, by any process, and returns the last position.
// Pages include them from then on.
func (f *Feed) readNew(ctx context.Context) (int64, error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	last, err := f.readStore(store.BulkRead(ctx))
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil { // otherwise the last follower has left, and the error is not about the store
		f.err = err
	}
	return last, err
}

func (f *Feed) readStore(ctx context.Context) (int64, error) {
	now := time.Now()
	shared, err := f.e.listShared(ctx)
	if err != nil {
		return 0, err
	}
	last, err := f.e.cfg.Store.LastPosition(ctx)
	if err != nil {
		return 0, StoreError("find the last event", err)
	}
	f.mu.Lock()
	f.shared, f.end = shared, last
	if !f.started || last-f.last > maxFeedEvents { // older events are read from the store
		f.started, f.after, f.last, f.bytes, f.events, f.instances = true, last, last, 0, nil, map[string]*feedInstance{}
	}
	from := f.last
	if last <= from {
		f.lastRead = now
		f.mu.Unlock()
		return from, nil
	}
	f.mu.Unlock()
	for ev, err := range f.e.cfg.Store.EventsAfter(ctx, store.TailQuery{After: from, UpTo: last}) {
		if err != nil {
			return 0, StoreError("read the events", err)
		}
		f.addEvent(ev)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.lastRead = last, now
	return last, nil
}

// addEvent adds an event, and drops the oldest ones if there are too many.
func (f *Feed) addEvent(at store.PlacedEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.instances[at.Event.Instance]
	if now == nil {
		now = &feedInstance{}
		f.instances[at.Event.Instance] = now
	}
	now.heldEvents++
	now.version.Store(int64(at.Version))
	if at.Event.Kind.Revises() {
		now.moves.Add(1)
	}
	ev := &feedEvent{PlacedEvent: at, size: len(at.Event.Body()), now: now}
	f.events = append(f.events, ev)
	f.bytes += ev.size
	f.last = at.Position
	drop := 0
	for ; len(f.events)-drop > maxFeedEvents || f.bytes > maxFeedBytes; drop++ {
		f.bytes -= f.events[drop].size
		f.after = f.events[drop].Position
		if old := f.events[drop]; old.now.heldEvents > 1 {
			old.now.heldEvents--
		} else {
			delete(f.instances, old.Event.Instance)
		}
	}
	if drop > 0 {
		clear(f.events[:drop])
		f.events = f.events[drop:]
	}
}

// dropAll drops all held events. The next readNew starts afresh.
func (f *Feed) dropAll() {
	f.reading.Lock()
	defer f.reading.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started, f.bytes, f.events, f.instances, f.err = false, 0, nil, nil, nil
}

// Page returns the events after req.After, as Tail does, up to the feed's position. It ignores req.Limit.
func (f *Feed) Page(ctx context.Context, p Principal, req TailRequest) (FeedPage, error) {
	if err := Authorize(p, RightRead); err != nil {
		return FeedPage{}, err
	}
	held, page, ok, err := f.cachedPage(p, req)
	switch {
	case err != nil:
		return FeedPage{}, err
	case !ok:
		return f.readPage(ctx, p, req)
	}
	if req.Instance != "" && len(held) > 0 {
		if _, err := f.e.loadInstance(ctx, p, req.Instance); err != nil {
			return FeedPage{}, err
		}
	}
	for _, ev := range held {
		text, err := f.renderEvent(ctx, ev, viewClass{p.Role, ev.Owner == p.ID})
		if err != nil {
			return FeedPage{}, err
		}
		page.Items = append(page.Items, FeedItem{Position: ev.Position, Kind: ev.Event.Kind, JSON: text})
	}
	return page, nil
}

// cachedPage returns the events of a page that p may see; ok is false if some may no longer be held.
func (f *Feed) cachedPage(p Principal, req TailRequest) (found []*feedEvent, page FeedPage, ok bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil:
		return nil, FeedPage{}, false, f.err
	case !f.started || req.After < f.after:
		return nil, FeedPage{}, false, nil
	}
	page.Next = max(req.After, f.last)
	size, sees := 0, sight{p, f.shared}
	for _, ev := range f.events[f.indexAfter(req.After):] {
		if !sees.showsEvent(req, ev.PlacedEvent) {
			continue
		}
		if len(found) == feedPage || len(found) > 0 && size+ev.size > feedPageBytes {
			page.Next, page.More = found[len(found)-1].Position, true
			break
		}
		found, size = append(found, ev), size+ev.size
	}
	return found, page, true, nil
}

func (f *Feed) readPage(ctx context.Context, p Principal, req TailRequest) (FeedPage, error) {
	req.Limit = feedPage
	read, err := f.e.readTail(ctx, p, req, feedPageBytes)
	if err != nil {
		return FeedPage{}, err
	}
	page := FeedPage{Next: read.Next, More: read.More}
	for _, view := range read.Events {
		text, err := encodeView(view)
		if err != nil {
			return FeedPage{}, err
		}
		page.Items = append(page.Items, FeedItem{Position: view.Position, Kind: view.Kind, JSON: text})
	}
	return page, nil
}

func (f *Feed) renderEvent(ctx context.Context, ev *feedEvent, class viewClass) ([]byte, error) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	version, moves := ev.now.version.Load(), ev.now.moves.Load()
	if r, ok := ev.rendered[class]; ok && r.version == version && (!r.sensitive || r.moves == moves) {
		return r.json, nil
	}
	// The rendering is shared by the class, so the viewer must not have rights of its own: unless it is
	// the owner, it gets no id.
	viewer := Principal{Role: class.role}
	if class.owns {
		viewer.ID = ev.Owner
	}
	ctx = store.BulkRead(ctx)
	show := f.e.newView(viewer)
	at := ev.PlacedEvent
	at.Version = int(version)
	if err := show.prepareEvent(ctx, at); err != nil {
		return nil, err
	}
	view, err := eventView(ctx, show, at)
	if err != nil {
		return nil, err
	}
	text, err := encodeView(view)
	if err != nil {
		return nil, err
	}
	if ev.rendered == nil {
		ev.rendered = map[viewClass]rendering{}
	}
	ev.rendered[class] = rendering{version, moves, show.id != "" && !show.idOnly, text}
	return text, nil
}

func encodeView(view EventView) ([]byte, error) {
	text, err := document.Marshal(view)
	if err != nil {
		return nil, InternalError("encode an event", err)
	}
	return text, nil
}
