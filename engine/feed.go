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

// The bounds of a feed.
const (
	// maxFeedBytes bounds what is recorded of the events that a feed holds, and feedEvents
	// their number.
	maxFeedBytes  = 8 << 20
	maxFeedEvents = 10_000
	// feedPageBytes bounds a page: a reader that takes none of it holds so much.
	feedPageBytes = 256 << 10
	// feedPage is how many events a page has at most.
	feedPage = historyMost
)

// Feed gives many streams what is committed: while there are followers, each new event is
// read once, and rendered once for all who see the same of it. It holds the newest events. A
// stream that is behind them reads pages of the store, as its own bulk reads. It is safe for
// concurrent use.
type Feed struct {
	e *Engine

	followers followers
	reading   sync.Mutex // held while the store is read

	mu     sync.Mutex
	begun  bool
	after  int64 // the position behind which all events up to last are held
	last   int64
	end    int64     // the last position of the store, when it was last asked for
	looked time.Time // when it was asked for, and then all up to it was read
	bytes  int
	events []*feedEvent
	moving map[string]*movingInstance // of the events that are held
	shared []string                   // the workflows whose instances agents share, at the last readNew
	err    error                      // of the last readNew
}

// movingInstance is what is known of an instance with events in the feed without a look at it.
type movingInstance struct {
	held    int // events; guarded by Feed.mu
	moves   atomic.Int64
	version atomic.Int64 // the present one of its definition
}

type feedEvent struct {
	store.PlacedEvent
	size int
	now  *movingInstance

	mu       sync.Mutex // held while it is rendered
	rendered map[viewClass]rendering
}

// rendering is an event as JSON. What is shown of it depends on the present version of the definition and,
// where something is sensitive, on what the instance has by now, so on its moves.
type rendering struct {
	version, moves int64
	sensitive      bool
	json           []byte
}

// viewClass is all that what is shown of an event depends on: two callers of one class see
// the same.
type viewClass struct {
	role Role
	owns bool // the instance
}

// FeedItem is one event of a page.
type FeedItem struct {
	Position int64
	Kind     record.Kind
	// JSON is the EventView. It is shared: it must not be changed.
	JSON []byte
}

// FeedPage is what follows a position.
type FeedPage struct {
	Items []FeedItem
	// Next is After of the request that continues.
	Next int64
	// More says that there is more already.
	More bool
}

// Feed returns the feed that everybody in this process follows.
func (e *Engine) Feed() *Feed { return e.feed }

func newFeed(e *Engine) *Feed {
	return &Feed{e: e, followers: followers{all: map[*Follower]bool{}, wake: make(chan struct{})}}
}

// readNew takes in what was committed since the last call, by this process or another one,
// and returns the last position. Pages show it from then on.
func (f *Feed) readNew(ctx context.Context) (int64, error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	last, err := f.readStore(store.BulkRead(ctx))
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() == nil { // else the last follower left: no word on the store for the next one
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
	if !f.begun || last-f.last > maxFeedEvents { // who wants what is before reads it from the store
		f.begun, f.after, f.last, f.bytes, f.events, f.moving = true, last, last, 0, nil, map[string]*movingInstance{}
	}
	from := f.last
	if last <= from {
		f.looked = now
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
	f.last, f.looked = last, now
	return last, nil
}

// addEvent holds one more event, and drops the oldest when there are too many.
func (f *Feed) addEvent(at store.PlacedEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.moving[at.Event.Instance]
	if now == nil {
		now = &movingInstance{}
		f.moving[at.Event.Instance] = now
	}
	now.held++
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
		if old := f.events[drop]; old.now.held > 1 {
			old.now.held--
		} else {
			delete(f.moving, old.Event.Instance)
		}
	}
	if drop > 0 {
		clear(f.events[:drop])
		f.events = f.events[drop:]
	}
}

// dropAll drops all that is held. The next readNew begins anew.
func (f *Feed) dropAll() {
	f.reading.Lock()
	defer f.reading.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.bytes, f.events, f.moving, f.err = false, 0, nil, nil, nil
}

// Page returns what follows req.After, as Tail does, up to where the feed has come. Its Limit is
// not read.
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

// cachedPage are the events of a page that p may see; false when some of them may not be held.
func (f *Feed) cachedPage(p Principal, req TailRequest) (found []*feedEvent, page FeedPage, ok bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil:
		return nil, FeedPage{}, false, f.err
	case !f.begun || req.After < f.after:
		return nil, FeedPage{}, false, nil
	}
	page.Next = max(req.After, f.last)
	size, sees := 0, sight{p, f.shared}
	for _, ev := range f.events[f.indexBehind(req.After):] {
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
	// Nobody else's rights count: who is not the owner owns nothing at all.
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
