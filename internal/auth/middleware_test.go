package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/listen"
)

// keys knows fixed credentials.
type keys map[string]error

func (k keys) Authenticate(_ context.Context, bearer string) (Identity, error) {
	if bearer == "" {
		return Identity{}, ErrNoCredential
	}
	err, known := k[bearer]
	if !known {
		err = fmt.Errorf("%w: inner detail of %s", ErrBadCredential, bearer)
	}
	return Identity{Principal: engine.Principal{ID: "p:" + bearer, Role: engine.RoleAgent}, Kind: KindToken}, err
}

func gate(t *testing.T, a Authenticator, o Options) http.Handler {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	return Middleware(a, o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := FromContext(r.Context())
		if !ok || r.Header.Get("Authorization") != "" {
			t.Errorf("the handler sees %v %v, Authorization %q", id, ok, r.Header.Get("Authorization"))
		}
		_, _ = w.Write([]byte(id.ID))
	}))
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	metadata := func(*http.Request) string { return "https://g.example/.well-known/oauth-protected-resource/mcp" }
	h := gate(t, keys{"good": nil, "down": fmt.Errorf("%w: the reason", ErrUnavailable)}, Options{ResourceMetadata: metadata})
	const about = `Bearer realm="gavel", resource_metadata="https://g.example/.well-known/oauth-protected-resource/mcp"`
	for _, tt := range []struct {
		name      string
		header    []string
		query     string
		status    int
		challenge string
	}{
		{"good", []string{"Bearer good"}, "", 200, ""},
		{"scheme in lower case", []string{"bearer good"}, "", 200, ""},
		{"several spaces", []string{"Bearer   good "}, "", 200, ""},
		{"none", nil, "", 401, about},
		{"in the address", nil, "?access_token=good", 401, about},
		{"bad", []string{"Bearer bad"}, "", 401, about + `, error="invalid_token"`},
		{"bad, and good in the address", []string{"Bearer bad"}, "?access_token=good", 401, about + `, error="invalid_token"`},
		{"two", []string{"Bearer good", "Bearer good"}, "", 400, about + `, error="invalid_request"`},
		{"two in one", []string{"Bearer good, Bearer bad"}, "", 400, about + `, error="invalid_request"`},
		{"other scheme", []string{"Basic Z29vZDpnb29k"}, "", 400, about + `, error="invalid_request"`},
		{"no scheme", []string{"good"}, "", 400, about + `, error="invalid_request"`},
		{"no token", []string{"Bearer "}, "", 400, about + `, error="invalid_request"`},
		{"empty", []string{""}, "", 400, about + `, error="invalid_request"`},
		{"beyond ASCII", []string{"Bearer gööd"}, "", 400, about + `, error="invalid_request"`},
		{"long", []string{"Bearer " + strings.Repeat("x", 17<<10)}, "", 400, about + `, error="invalid_request"`},
		{"cannot tell", []string{"Bearer down"}, "", 503, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/mcp"+tt.query, http.NoBody)
		r.Header["Authorization"] = tt.header
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.status || w.Header().Get("WWW-Authenticate") != tt.challenge {
			t.Errorf("%s: %d %q, want %d %q", tt.name, w.Code, w.Header().Get("WWW-Authenticate"), tt.status, tt.challenge)
		}
		if w.Code == http.StatusOK {
			continue
		}
		var p struct {
			Status       int
			Code, Detail string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Code == "" || p.Detail == "" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: not a problem: %s %v", tt.name, w.Body, err)
		}
		if strings.Contains(w.Body.String(), "inner") || strings.Contains(w.Body.String(), "reason") {
			t.Errorf("%s: tells too much: %s", tt.name, w.Body)
		}
	}
}

// TestFailuresAreLimited checks the limit by address, which never affects a valid credential.
func TestFailuresAreLimited(t *testing.T) {
	t.Parallel()
	h := gate(t, keys{"good": nil}, Options{MaxFailures: 3})
	ask := func(bearer, from string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+bearer)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for i := range 5 {
		want := http.StatusUnauthorized
		if i >= 3 {
			want = http.StatusTooManyRequests
		}
		if w := ask("bad", fmt.Sprintf("[2001:db8::%d]:1", i)); w.Code != want || (want == http.StatusTooManyRequests) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("failure %d: %d %v", i+1, w.Code, w.Header())
		}
	}
	if w := ask("good", "[2001:db8::1]:1"); w.Code != http.StatusOK {
		t.Errorf("a good credential is kept out: %d", w.Code)
	}
	if w := ask("bad", "192.0.2.1:1"); w.Code != http.StatusUnauthorized {
		t.Errorf("another address suffers: %d", w.Code)
	}
}

func TestFailuresAreForgotten(t *testing.T) {
	t.Parallel()
	f := newFailures(1, time.Minute)
	now := time.Now()
	from := listen.AddressOf("192.0.2.1:99")
	if wait := f.recordFailure(from, now); wait != 0 {
		t.Errorf("the first waits %s", wait)
	}
	if wait := f.recordFailure(from, now.Add(20*time.Second)); wait != 40*time.Second {
		t.Errorf("the second waits %s", wait)
	}
	if wait := f.recordFailure(from, now.Add(time.Minute)); wait != 0 {
		t.Errorf("a minute later waits %s", wait)
	}
	for i := range 3 * maxRemembered {
		f.recordFailure(listen.AddressOf(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255)), now)
	}
	if f.seen.Len() > maxRemembered {
		t.Errorf("%d addresses are kept", f.seen.Len())
	}
}

// TestStreamsEndWithTheirCredential checks that a stream ends soon after its token, however its caller requested it.
func TestStreamsEndWithTheirCredential(t *testing.T) {
	t.Parallel()
	for _, accept := range [][]string{{"text/event-stream"}, {"Text/Event-Stream"}, {"text/*"}, {"application/json;q=0.1", "text/event-stream"}, nil} {
		synctest.Test(t, func(t *testing.T) { streamEndsWithItsCredential(t, accept) })
	}
}

func streamEndsWithItsCredential(t *testing.T, accept []string) {
	t.Helper()
	tokens := open(t, "")
	bearer, token := create(t, tokens, NewToken{Name: "a"})
	h := Middleware(tokens, Options{Logger: slog.New(slog.DiscardHandler)})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", http.NoBody)
	r.Header.Set("Authorization", "Bearer "+bearer)
	r.Header["Accept"] = accept
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	<-time.After(time.Hour)
	select {
	case <-ended:
		t.Fatal("the stream of a valid token ended")
	default:
	}
	if _, err := tokens.Revoke(token.ID); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	<-ended
	if took := time.Since(revoked); took > 10*time.Second {
		t.Errorf("Accept %q: it went on for %s", accept, took)
	}
}

func TestAny(t *testing.T) {
	t.Parallel()
	down := fmt.Errorf("%w: down", ErrUnavailable)
	both := Any(keys{"a": nil, "x": down}, keys{"b": nil})
	for bearer, want := range map[string]error{"a": nil, "b": nil, "c": ErrBadCredential, "x": ErrUnavailable, "": ErrNoCredential} {
		id, err := both.Authenticate(t.Context(), bearer)
		if !errors.Is(err, want) || (err == nil && id.ID != "p:"+bearer) || (err != nil && id.ID != "") {
			t.Errorf("%q: %v %v, want %v", bearer, id, err, want)
		}
	}
	one := Local(engine.Principal{ID: "local:agent", Role: engine.RoleAgent})
	if id, err := one.Authenticate(t.Context(), "anything"); err != nil || id.ID != "local:agent" || id.Kind != KindNone {
		t.Errorf("%v %v", id, err)
	}
}
