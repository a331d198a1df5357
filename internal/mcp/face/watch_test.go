package face_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

func quickly(c *face.Config) { c.Limits.Settle = time.Millisecond }

func (w *session) subscribe(uri string) {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"sub","method":"resources/subscribe","params":{"uri":"` + uri + `"}}`)
	if m := w.next(); m["id"] != "sub" || m["result"] == nil {
		w.t.Fatalf("subscribe to %s: %v", uri, m)
	}
}

// updated waits for notifications about all the resources, in any order.
func (w *session) updated(stream any, uris ...string) {
	w.t.Helper()
	missing := map[string]bool{}
	for _, uri := range uris {
		missing[uri] = true
	}
	for len(missing) > 0 {
		m := w.next()
		params, _ := m["params"].(map[string]any)
		uri, _ := params["uri"].(string)
		if m["method"] != "notifications/resources/updated" || !slices.Contains(uris, uri) {
			w.t.Fatalf("got %v, waiting for %v", m, missing)
		}
		meta, _ := params["_meta"].(map[string]any)
		if meta["io.modelcontextprotocol/subscriptionId"] != stream {
			w.t.Errorf("the notification belongs to %v", meta)
		}
		delete(missing, uri)
	}
}

// moves performs an action and waits for both the answer and the update.
func (w *session) moves(id, action string, stream any, uri string) {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"move","method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"` + id + `","action":"` + action + `","data":{"to":"all"}}}}`)
	late := 0
	for answered, updated := false, false; !answered || !updated; {
		m := w.next()
		params, _ := m["params"].(map[string]any)
		meta, _ := params["_meta"].(map[string]any)
		switch {
		case m["id"] == "move":
			answered = true
		case params["uri"] == uri && meta["io.modelcontextprotocol/subscriptionId"] == stream:
			updated = true
		case params["uri"] == uri && late == 0: // for a subscription that has just ended
			late++
		default:
			w.t.Fatalf("got %v", m)
		}
	}
}

// quiet reports anything that the server sends before it answers a ping as an error.
func (w *session) quiet() {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"quiet","method":"ping"}`)
	if m := w.next(); m["id"] != "quiet" {
		w.t.Errorf("nothing has changed, got %v", m)
	}
}

// stores returns a file store opened twice, as by two processes, and a memory store that two engines share.
func stores(t *testing.T) map[string][2]store.Store {
	t.Helper()
	memory := memory.New()
	path := filepath.Join(t.TempDir(), "gavel.db")
	var files [2]store.Store
	for i := range files {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		files[i] = s
	}
	return map[string][2]store.Store{"memory": {memory, memory}, "file": files}
}

// A reviewer in another process decides, and the agent's client is notified.
func TestUpdatesOfAnotherProcess(t *testing.T) {
	for name, both := range stores(t) {
		t.Run(name, func(t *testing.T) {
			at := func(s store.Store) func(*engine.Config) {
				return func(c *engine.Config) { c.Store, c.NewID, c.Now = s, nil, nil }
			}
			ours, theirs := newEngine(t, withReviews, at(both[0])), newEngine(t, withReviews, at(both[1]))
			w := serve(t, ours, withReviewTools, quickly)
			w.hello("test")
			id := w.started(release, "release")
			review := w.parked(id)
			uris := []string{"workflow://instances/" + id, "workflow://instances/" + id + "/history", "workflow://reviews/" + review}
			for _, uri := range uris {
				w.subscribe(uri)
			}
			w.quiet()
			ann := engine.Principal{ID: "ann", Role: engine.RoleReviewer}
			if r, err := theirs.Resolve(context.Background(), ann, engine.ResolveRequest{ID: review, Decision: "approve", Reason: "checked"}); err != nil || !r.Applied {
				t.Fatal(r, err)
			}
			w.updated(nil, uris...)
			agent := engine.Principal{ID: "local:agent", Role: engine.RoleAgent}
			if s, err := ours.Status(t.Context(), agent, id); err != nil || s.State != "shipped" {
				t.Errorf("status: %v %v", s, err)
			}
			w.end()
		})
	}
}

func TestUnsubscribe(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withReviewTools, quickly)
	w.hello("test")
	id := w.started(release, "release")
	uri := "workflow://instances/" + id
	w.subscribe(uri)
	w.subscribe(uri) // a second subscription has no effect
	w.send(`{"jsonrpc":"2.0","id":"un","method":"resources/unsubscribe","params":{"uri":"` + uri + `"}}`)
	if m := w.next(); m["result"] == nil {
		t.Fatalf("unsubscribe: %v", m)
	}
	w.parked(id)
	w.quiet()
	kept := "workflow://instances/" + id + "/history"
	w.subscribe(kept)
	w.parked(id)
	w.quiet() // the same data change nothing
	w.moves(id, "fix", nil, kept)
}

// tailed is a store whose tails can be observed.
type tailed struct {
	*memory.Store
	read atomic.Int64 // events
	tail func(context.Context) error
}

func (s *tailed) LastPosition(ctx context.Context) (int64, error) {
	if err := s.tail(ctx); err != nil {
		return 0, err
	}
	return s.Store.LastPosition(ctx)
}

func (s *tailed) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		for ev, err := range s.Store.EventsAfter(ctx, q) {
			s.read.Add(1)
			if !yield(ev, err) {
				return
			}
		}
	}
}

func on(s store.Store) func(*engine.Config) { return func(c *engine.Config) { c.Store = s } }

// After a store has failed for a while, updates work again.
func TestUpdatesAfterFailures(t *testing.T) {
	var broken atomic.Bool
	tries := make(chan struct{})
	s := &tailed{Store: memory.New(), tail: func(context.Context) error {
		if !broken.Load() {
			return nil
		}
		select {
		case tries <- struct{}{}:
		default:
		}
		return errors.New("the disk is away")
	}}
	w := serve(t, newEngine(t, withReviews, on(s)), withReviewTools, quickly)
	w.hello("test")
	id := w.started(release, "release")
	uri := "workflow://instances/" + id
	w.subscribe(uri)
	broken.Store(true)
	w.parked(id)
	for range 3 {
		<-tries
	}
	broken.Store(false)
	w.updated(nil, uri)
}

// statusCounted counts calls of StatusAt.
type statusCounted struct {
	operation.Engine
	looks atomic.Int64
}

func (s *statusCounted) StatusAt(ctx context.Context, p engine.Principal, id string, w engine.When) (engine.StatusResult, error) {
	s.looks.Add(1)
	return s.Engine.StatusAt(ctx, p, id, w)
}

// However many clients and subscriptions there are, an event is read once for all of them, and causes no other reads.
func TestSubscriptionsShareOneReader(t *testing.T) {
	s := &tailed{Store: memory.New(), tail: func(context.Context) error { return nil }}
	e := &statusCounted{Engine: newEngine(t, withReviews, on(s))}
	var clients []*session
	var id string
	var uris []string
	for i := range 20 {
		w := serve(t, e, withReviewTools, quickly)
		w.hello("test")
		if i == 0 {
			id = w.started(release, "release")
			uri := "workflow://instances/" + id
			uris = []string{uri, uri + "/history", uri + "/diagram"}
		}
		for _, uri := range uris {
			w.subscribe(uri)
		}
		clients = append(clients, w)
	}
	var read, looks int64
	for i, action := range []string{"ship", "fix", "ship"} {
		if i == 1 { // all follow the feed by now
			read, looks = s.read.Load(), e.looks.Load()
		}
		if _, err := e.Advance(t.Context(), engine.Principal{ID: "local:agent", Role: engine.RoleAgent}, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(`{"to":"all"}`))}); err != nil {
			t.Fatal(err)
		}
		for _, w := range clients {
			w.updated(nil, uris...)
		}
	}
	events := int64(0)
	for _, err := range s.Events(t.Context(), store.EventQuery{Instance: id}) {
		if err != nil {
			t.Fatal(err)
		}
		events++
	}
	if got := s.read.Load() - read; got == 0 || got > events {
		t.Errorf("%d of %d events were read for %d subscriptions", got, events, len(clients)*len(uris))
	}
	if got := e.looks.Load() - looks; got != 0 {
		t.Errorf("%d looks besides", got)
	}
}

func TestUnwatchableResourcesAreRefused(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), quickly)
	w.hello("test")
	id := w.started(release, "release")
	for uri, code := range map[string]string{
		"workflow://instances/wf-nope": "unknown_instance", "workflow://definitions/release": "invalid_argument", "workflow://instances": "invalid_argument",
		"workflow://reviews/rev-1": "invalid_argument", "file:///etc/passwd": "invalid_argument", "workflow://instances/" + id + "/other": "invalid_argument", "instances/" + id: "invalid_argument",
	} {
		w.send(`{"jsonrpc":"2.0","id":"sub","method":"resources/subscribe","params":{"uri":"` + uri + `"}}`)
		e, _ := w.next()["error"].(map[string]any)
		data, _ := e["data"].(map[string]any)
		if data["code"] != code || strings.Contains(fmt.Sprint(e["message"]), "gavel.error") {
			t.Errorf("%s: %v", uri, e)
		}
		w.send(`{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["` + uri + `"]},` + modern(`{}`) + `}}`)
		e, _ = w.next()["error"].(map[string]any)
		data, _ = e["data"].(map[string]any)
		if data["code"] != code || strings.Contains(fmt.Sprint(e["message"]), "gavel.error") {
			t.Errorf("listen to %s: %v", uri, e)
		}
	}
}

// A subscriber does not see another principal's instance.
func TestSubscribersSeeTheirOwn(t *testing.T) {
	e := newEngine(t, withReviews)
	w := serve(t, e, withReviewTools)
	w.hello("test")
	id := w.started(release, "release")
	review := w.parked(id)
	w.end()
	w = serve(t, e, withReviewTools, func(c *face.Config) { c.Principal.ID = "local:other" })
	w.hello("test")
	for _, uri := range []string{"workflow://instances/" + id, "workflow://reviews/" + review} {
		w.send(`{"jsonrpc":"2.0","id":"sub","method":"resources/subscribe","params":{"uri":"` + uri + `"}}`)
		if m := w.next(); m["error"] == nil {
			t.Errorf("%s: %v", uri, m)
		}
	}
}

// In the protocol era without initialize, a subscription is a request that stays open.
func TestListening(t *testing.T) {
	w := serve(t, newEngine(t, withReviews), withReviewTools, quickly)
	id := w.started(release, "release")
	uri := "workflow://instances/" + id
	listen := func(id string) {
		t.Helper()
		w.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["` + uri + `"]},` + modern(`{}`) + `}}`)
		m := w.next()
		for m["method"] == "notifications/resources/updated" { // a late update of the previous subscription
			m = w.next()
		}
		if m["method"] != "notifications/subscriptions/acknowledged" || !strings.Contains(fmt.Sprint(m["params"]), uri) {
			t.Fatalf("listen: %v", m)
		}
	}
	listen("7")
	w.moves(id, "ship", 7.0, uri)
	w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	listen(`"second"`)
	w.moves(id, "fix", "second", uri)
	w.send(`{"jsonrpc":"2.0","id":99999999999999999999,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["` + uri + `"]},` + modern(`{}`) + `}}`)
	m := w.next()
	for m["method"] != nil { // a late update
		m = w.next()
	}
	if m["error"] == nil {
		t.Errorf("an id that notifications cannot name: %v", m)
	}
}

func TestTooManySubscriptions(t *testing.T) {
	e := newEngine(t)
	w := serve(t, e)
	w.hello("test")
	if r := w.call("workflow.define", define); r.IsError {
		t.Fatal(r.text())
	}
	for i := range 67 {
		id := w.call("workflow.start", `{"type":"simple"}`).StructuredContent["id"].(string)
		for j, part := range []string{"", "/history", "/diagram"} {
			w.send(`{"jsonrpc":"2.0","id":"sub","method":"resources/subscribe","params":{"uri":"workflow://instances/` + id + part + `"}}`)
			if m := w.next(); (m["error"] != nil) != (3*i+j >= 200) {
				t.Errorf("subscription %d: %v", 3*i+j, m)
			}
		}
	}
}

// No subscription outlives its connection, however slow the store is.
func TestEndWhileReading(t *testing.T) {
	entered := make(chan struct{}, 1)
	s := &tailed{Store: memory.New(), tail: func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	w := serve(t, newEngine(t, withReviews, on(s)), quickly)
	w.hello("test")
	id := w.started(release, "release")
	w.subscribe("workflow://instances/" + id)
	<-entered
	w.quiet() // the protocol does not wait for the read
	_ = w.in.Close()
	if err := <-w.done; err != nil {
		t.Errorf("ServeStdio returned %v", err)
	}
}
