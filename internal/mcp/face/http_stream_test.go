package face_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// parkedHTTP defines a workflow, starts it and parks its move.
func (v visitor) parkedHTTP() (id, review string) {
	v.t.Helper()
	v.call("workflow.define", strings.ReplaceAll(release, "\n", ""))
	id = v.call("workflow.start", `{"type":"release"}`).StructuredContent["id"].(string)
	r := v.call("workflow.advance", `{"id":"`+id+`","action":"ship","data":{"to":"all"}}`)
	return id, r.review()["reviewId"].(string)
}

func (v visitor) subscribe(uri string) httpAnswer {
	v.t.Helper()
	return v.ask(`{"jsonrpc":"2.0","id":"sub","method":"resources/subscribe","params":{"uri":"` + uri + `"}}`)
}

func approveAsAnn(t *testing.T, e *engine.Engine, review string) {
	t.Helper()
	reviewer := engine.Principal{ID: "rex", Role: engine.RoleReviewer}
	if r, err := e.Resolve(t.Context(), reviewer, engine.ResolveRequest{ID: review, Decision: "approve", Reason: "checked"}); err != nil || !r.Applied {
		t.Fatal(r, err)
	}
}

// A person's decision reaches a subscribed client over the session's stream, whether the stream was opened before or
// after it.
func TestHTTPUpdatesOverTheSessionsStream(t *testing.T) {
	e := newEngine(t, withReviews)
	s := serveHTTP(t, e, withReviewTools)
	ann := s.hello()
	_, review := ann.parkedHTTP()
	uri := "workflow://reviews/" + review
	if a := ann.subscribe(uri); a.status != http.StatusOK || !strings.Contains(string(a.body), `"result":{}`) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := ann.subscribe("workflow://definitions/release"); !strings.Contains(string(a.body), "Clients cannot subscribe to the resource") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.hello("Who", "bob").subscribe(uri); !strings.Contains(string(a.body), "unknown_review") {
		t.Errorf("bob subscribes to ann's review: %d %s", a.status, a.body)
	}
	approveAsAnn(t, e, review)
	first := ann.open(ann.request(http.MethodGet, "", ann.headers...))
	want := `"params":{"uri":"` + uri + `"}`
	if got := first.next(); first.status != http.StatusOK || !strings.Contains(got, want) {
		t.Errorf("%d %s", first.status, got)
	}
	// A second stream replaces the first, and repeats what may have been lost.
	second := ann.open(ann.request(http.MethodGet, "", ann.headers...))
	if got := first.next(); got != "" {
		t.Errorf("the first stream goes on: %s", got)
	}
	if got := second.next(); !strings.Contains(got, want) {
		t.Errorf("after the stream broke: %s", got)
	}
	if a := ann.do(ann.request(http.MethodDelete, "", ann.headers...)); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := second.next(); got != "" {
		t.Errorf("the stream of an ended session goes on: %s", got)
	}
}

func (s *site) listen(id string, uris string, headers ...string) *stream {
	s.t.Helper()
	return s.open(s.modernRequest(id, "subscriptions/listen", "", `,"notifications":{"resourceSubscriptions":[`+uris+`]}`, headers...))
}

// Without sessions, a subscription is a request that stays open.
func TestHTTPUpdatesOfTheModernEra(t *testing.T) {
	e := newEngine(t, withReviews)
	s := serveHTTP(t, e, withReviewTools)
	_, review := s.hello().parkedHTTP()
	uri := "workflow://reviews/" + review
	l := s.listen("17", `"`+uri+`"`)
	if got := l.next(); !strings.Contains(got, "notifications/subscriptions/acknowledged") || !strings.Contains(got, uri) {
		t.Fatalf("%d %s", l.status, got)
	}
	approveAsAnn(t, e, review)
	if got := l.next(); !strings.Contains(got, "notifications/resources/updated") || !strings.Contains(got, uri) || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":17`) {
		t.Errorf("%s", got)
	}
	refused := s.do(s.modernRequest("18", "subscriptions/listen", "", `,"notifications":{"resourceSubscriptions":["`+uri+`"]}`, "Who", "bob"))
	if !strings.Contains(string(refused.body), "unknown_review") {
		t.Errorf("bob listens to ann's review: %d %s", refused.status, refused.body)
	}
	big := s.do(s.modernRequest("90071992547409931234", "subscriptions/listen", "", `,"notifications":{"resourceSubscriptions":["`+uri+`"]}`))
	if big.status != http.StatusBadRequest || big.code() != "invalid_request" {
		t.Errorf("%d %s", big.status, big.body)
	}
	s.endpoint.EndStreams()
	if got := l.next(); got != "" {
		t.Errorf("the stream goes on: %s", got)
	}
}

// A stream ends when the credential that opened it expires or is revoked.
func TestHTTPStreamsEndWithTheCredential(t *testing.T) {
	var revoked atomic.Bool
	s := serveHTTP(t, newEngine(t), func(c *face.Config) {
		c.Limits.Alive = 10 * time.Millisecond
		c.StillValid = func(_ context.Context, who auth.Identity) bool { return who.ID != "ann" || !revoked.Load() }
	})
	ann, bob := s.hello(), s.hello("Who", "bob")
	hers, his := ann.open(ann.request(http.MethodGet, "", ann.headers...)), bob.open(bob.request(http.MethodGet, "", append(bob.headers, "Expires-In", "50ms")...))
	if hers.status != http.StatusOK || his.status != http.StatusOK {
		t.Fatal(hers.status, his.status)
	}
	revoked.Store(true)
	if got := hers.next(); got != "" {
		t.Errorf("ann's goes on: %s", got)
	}
	if got := his.next(); got != "" {
		t.Errorf("bob's goes on: %s", got)
	}
}

// When the server shuts down, streams end and calls are still answered.
func TestHTTPDrain(t *testing.T) {
	s := serveHTTP(t, newEngine(t))
	ann := s.hello()
	open := ann.open(ann.request(http.MethodGet, "", ann.headers...))
	s.endpoint.EndStreams()
	if got := open.next(); got != "" {
		t.Errorf("the stream goes on: %s", got)
	}
	if a := ann.ask(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	for name, r := range map[string]*http.Request{
		"a stream":     s.request(http.MethodGet, "", ann.headers...),
		"a session":    s.request(http.MethodPost, helloHTTP),
		"subscription": s.modernRequest("1", "subscriptions/listen", "", `,"notifications":{"resourceSubscriptions":["workflow://instances/x"]}`),
	} {
		if a := s.do(r); a.status != http.StatusServiceUnavailable || a.code() != "unavailable" || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

func TestHTTPLimits(t *testing.T) {
	s := serveHTTP(t, newEngine(t), func(c *face.Config) {
		c.Limits = wire.Limits{Settle: 10 * time.Millisecond, Sessions: 4, SessionsEach: 2, Streams: 3, StreamsEach: 1}
	})
	ann, again := s.hello(), s.hello()
	if a := s.post(helloHTTP); a.status != http.StatusTooManyRequests || a.code() != "too_many_sessions" || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	bob := s.hello("Who", "bob")
	first := ann.open(ann.request(http.MethodGet, "", ann.headers...))
	if first.status != http.StatusOK {
		t.Fatal(first.status)
	}
	if a := s.do(s.request(http.MethodGet, "", again.headers...)); a.status != http.StatusTooManyRequests || a.code() != "too_many_streams" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do(s.modernRequest("1", "subscriptions/listen", "", `,"notifications":{"resourceSubscriptions":["workflow://instances/x"]}`)); a.status != http.StatusTooManyRequests || a.code() != "too_many_streams" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if other := bob.open(bob.request(http.MethodGet, "", bob.headers...)); other.status != http.StatusOK {
		t.Errorf("ann's streams keep bob out: %d", other.status)
	}
	if a := ann.do(ann.request(http.MethodDelete, "", ann.headers...)); a.status != http.StatusOK {
		t.Fatal(a.status)
	}
	first.next() // it ends with its session, and releases its slot
	for deadline := time.Now().Add(patience); ; {
		l := s.open(s.request(http.MethodGet, "", again.headers...))
		if l.status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the place is not given back: %d", l.status)
		}
	}
	s.hello() // and so does the session
}

// In both protocol eras, another caller cannot cancel a call.
func TestHTTPCancelByAnother(t *testing.T) {
	e := newHeld(newEngine(t))
	s := serveHTTP(t, e)
	ann := s.hello()
	held := make(chan httpAnswer, 1)
	go func() {
		held <- ann.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.list","arguments":{}}}`)
	}()
	e.entered(t)
	for _, r := range []*http.Request{
		s.request(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{`+modernMeta+`},"requestId":1}}`, "Who", "bob", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "notifications/cancelled"),
		s.request(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, s.hello("Who", "bob").headers...),
	} {
		if a := s.do(r); a.status != http.StatusAccepted {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	e.release()
	if a := <-held; a.status != http.StatusOK || !strings.Contains(string(a.body), `"result":`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// heldList blocks calls of List until they are released.
type heldList struct {
	operation.Engine
	in, out chan struct{}
}

func newHeld(e operation.Engine) *heldList {
	return &heldList{e, make(chan struct{}, 10), make(chan struct{})}
}

func (s *heldList) List(ctx context.Context, p engine.Principal) ([]engine.DefinitionSummary, error) {
	s.in <- struct{}{}
	select {
	case <-s.out:
		return s.Engine.List(ctx, p)
	case <-ctx.Done():
		return nil, fmt.Errorf("list: %w", context.Cause(ctx))
	}
}

func (s *heldList) entered(t *testing.T) {
	t.Helper()
	select {
	case <-s.in:
	case <-time.After(patience):
		t.Fatal("the call did not arrive")
	}
}

func (s *heldList) release() { close(s.out) }

// Tools are listed by role, with names that the client accepts.
func TestHTTPToolsByCaller(t *testing.T) {
	s := serveHTTP(t, newEngine(t, withReviews), withReviewTools)
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	if a := s.hello().ask(list); !strings.Contains(string(a.body), `"name":"workflow.start"`) || strings.Contains(string(a.body), `"name":"workflow.review.resolve"`) {
		t.Errorf("an agent: %.300s", a.body)
	}
	rex := s.hello("Who", "rex", "Role", "reviewer")
	if a := rex.ask(list); !strings.Contains(string(a.body), `"name":"workflow.review.resolve"`) {
		t.Errorf("a reviewer: %.300s", a.body)
	}
	claude := s.post(strings.Replace(helloHTTP, `"name":"test"`, `"name":"claude-ai"`, 1))
	if !strings.Contains(string(claude.body), "workflow_start") || strings.Contains(string(claude.body), "workflow.start") {
		t.Errorf("instructions: %s", claude.body)
	}
	session := []string{"Mcp-Session-Id", claude.header.Get("Mcp-Session-Id")}
	if a := s.post(list, session...); !strings.Contains(string(a.body), `"name":"workflow_start"`) {
		t.Errorf("claude-ai: %.300s", a.body)
	}
	// A client without a name gets names that all clients accept.
	if a := s.do(s.modernRequest("1", "tools/list", "", "")); !strings.Contains(string(a.body), `"name":"workflow_start"`) {
		t.Errorf("no name: %.300s", a.body)
	}
	named := s.modernRequest("1", "tools/list", "", "")
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `,"io.modelcontextprotocol/clientInfo":{"name":"inspector","version":"1"}}}}`
	r := s.request(http.MethodPost, body)
	r.Header = named.Header
	if a := s.do(r); !strings.Contains(string(a.body), `"name":"workflow.start"`) {
		t.Errorf("inspector: %.300s", a.body)
	}
}
