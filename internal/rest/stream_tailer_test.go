package rest_test

import (
	"context"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/rest"
)

// countedStore counts the events that tails read.
type countedStore struct {
	*memory.Store
	read atomic.Int64
}

func (s *countedStore) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		for ev, err := range s.Store.EventsAfter(ctx, q) {
			s.read.Add(1)
			if !yield(ev, err) {
				return
			}
		}
	}
}

func newAPIOn(t testing.TB, db store.Store, options ...func(*rest.Config)) *api {
	t.Helper()
	e := newEngine(t, func(c *engine.Config) { c.Store = db })
	cfg := rest.Config{Engine: e, Logger: slog.New(slog.DiscardHandler)}
	for _, o := range options {
		o(&cfg)
	}
	h, err := rest.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &api{t: t, engine: e, handler: h, http: signedIn(h)}
}

// An event is read once for all open streams. After the last stream ends, nothing is read.
func TestStreamsShareOneReader(t *testing.T) {
	db := &countedStore{Store: memory.New()}
	a := newAPIOn(t, db, func(c *rest.Config) { c.MaxStreams = 30 })
	a.define(operator, paper)
	s := a.server()
	var streams []*sse
	for range 30 {
		for _, p := range []engine.Principal{agent, auditor} {
			stream := listenTo(t, s, p, "/v1/events", "")
			t.Cleanup(stream.close)
			if m, err := stream.next(); err != nil || m.id != "0" { // the stream has started
				t.Fatalf("%+v, %v", m, err)
			}
			streams = append(streams, stream)
		}
	}
	const events = 40
	for range events {
		a.start(agent)
	}
	var wg sync.WaitGroup
	for _, stream := range streams {
		wg.Go(func() {
			if got, _ := stream.events(t, events); got[events-1].Position != events {
				t.Errorf("the last event is at %d", got[events-1].Position)
			}
		})
	}
	wg.Wait()
	if got := db.read.Load(); got != events {
		t.Errorf("%d events were read for %d streams, want %d", got, len(streams), events)
	}
}

// The lag is that of the slowest stream.
func TestStreamLag(t *testing.T) {
	a := newAPIOn(t, memory.New(), func(c *rest.Config) { c.WriteTimeout = time.Minute })
	a.define(operator, paper)
	blocked, leave := make(chan struct{}), make(chan struct{})
	slow := &blockedWriter{ResponseWriter: httptest.NewRecorder(), blocked: blocked, leave: leave}
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Authorization", "Bearer "+agent.ID)
	ended := make(chan struct{})
	go func() { a.http.ServeHTTP(slow, r); close(ended) }()
	<-blocked // it accepts nothing
	fast := listenTo(t, a.server(), agent, "/v1/events", "0")
	for range 7 {
		a.start(agent)
	}
	fast.events(t, 7)
	if lag := a.engine.Feed().Lag(); lag.Events != 7 || lag.Time <= 0 {
		t.Errorf("beside a stream that takes nothing: %+v", lag)
	}
	cancel()
	close(leave)
	<-ended
	for deadline := time.Now().Add(patience); a.engine.Feed().Lag() != (engine.FeedLag{}); time.Sleep(time.Millisecond) { //nolint:forbidigo // nothing signals the end of a stream
		if time.Now().After(deadline) {
			t.Fatalf("without it: %+v", a.engine.Feed().Lag())
		}
	}
	fast.close()
}

// blockedWriter accepts nothing until it is released.
type blockedWriter struct {
	http.ResponseWriter
	blocked, leave chan struct{}
	once           sync.Once
}

func (w *blockedWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.blocked) })
	<-w.leave
	return len(b), nil
}

func (w *blockedWriter) FlushError() error { return nil }
