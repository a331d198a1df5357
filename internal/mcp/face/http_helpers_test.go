package face_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// authenticated replaces the authentication before a face: the header Who names the caller, and Role its role.
// Without Who, the caller is unauthenticated.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who := r.Header.Get("Who"); who != "" {
			id := auth.Identity{Principal: engine.Principal{ID: who, Role: engine.RoleAgent}, Kind: auth.KindToken}
			if role := r.Header.Get("Role"); role != "" {
				id.Role = engine.Role(role)
			}
			if d, err := time.ParseDuration(r.Header.Get("Expires-In")); err == nil {
				id.Expires = time.Now().Add(d)
			}
			r = r.WithContext(auth.NewContext(r.Context(), id))
		}
		next.ServeHTTP(w, r)
	})
}

// site is a face over HTTP on a loopback port.
type site struct {
	t        testing.TB
	url      string
	endpoint *wire.Endpoint
	client   *http.Client
}

func quietConfig(e operation.Engine) face.Config {
	return face.Config{Engine: e, Version: "test", Logger: slog.New(slog.DiscardHandler), Limits: wire.Limits{Settle: 10 * time.Millisecond}}
}

func serveHTTP(t testing.TB, e operation.Engine, options ...option) *site {
	t.Helper()
	cfg := quietConfig(e)
	for _, o := range options {
		o(&cfg)
	}
	face, err := face.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return newSite(t, face.Handler())
}

func newSite(t testing.TB, endpoint *wire.Endpoint) *site {
	t.Helper()
	server := httptest.NewServer(authenticated(endpoint))
	s := &site{t: t, url: server.URL, endpoint: endpoint, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		endpoint.EndStreams()
		s.client.CloseIdleConnections()
		server.Close()
		endpoint.Close()
	})
	return s
}

// request is one HTTP request; body may be "". Headers are pairs of name and value.
func (s *site) request(method, body string, headers ...string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Who", "ann")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Del(headers[i])
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return r
}

// httpAnswer is an HTTP response.
type httpAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (s *site) do(r *http.Request) httpAnswer {
	s.t.Helper()
	ctx, end := context.WithTimeout(r.Context(), patience)
	defer end()
	res, err := s.client.Do(r.WithContext(ctx))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return httpAnswer{res.StatusCode, res.Header, body}
}

func (s *site) post(body string, headers ...string) httpAnswer {
	s.t.Helper()
	return s.do(s.request(http.MethodPost, body, headers...))
}

// code returns the stable code of an error.
func (a httpAnswer) code() string {
	var m struct {
		Error struct{ Data struct{ Code string } }
	}
	_ = json.Unmarshal(a.body, &m)
	return m.Error.Data.Code
}

const helloHTTP = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

// visitor is a client with a session.
type visitor struct {
	*site
	headers []string
}

func (s *site) hello(headers ...string) visitor {
	s.t.Helper()
	a := s.post(helloHTTP, headers...)
	id := a.header.Get("Mcp-Session-Id")
	if a.status != http.StatusOK || id == "" {
		s.t.Fatalf("initialize: %d %s", a.status, a.body)
	}
	return visitor{s, append(headers, "Mcp-Session-Id", id, "Mcp-Protocol-Version", "2025-11-25")}
}

func (v visitor) ask(body string) httpAnswer {
	v.t.Helper()
	return v.post(body, v.headers...)
}

// call calls a tool, like wire.call.
func (v visitor) call(tool, arguments string) result {
	v.t.Helper()
	a := v.ask(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`)
	var m struct{ Result result }
	if err := json.Unmarshal(a.body, &m); err != nil || a.status != http.StatusOK {
		v.t.Fatalf("%s: %d %s", tool, a.status, a.body)
	}
	conforms(v.t, tool, &m.Result)
	return m.Result
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`

// modernRequest posts a request of the protocol era without sessions; params follow _meta.
func (s *site) modernRequest(id, method, name, params string, headers ...string) *http.Request {
	s.t.Helper()
	body := `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + modernMeta + `}` + params + `}}`
	headers = append(headers, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
	return s.request(http.MethodPost, body, headers...)
}

// stream is an open stream of events.
type stream struct {
	t      testing.TB
	lines  chan string // data of the events
	end    context.CancelFunc
	status int
	header http.Header
}

func (s *site) open(r *http.Request) *stream {
	s.t.Helper()
	ctx, end := context.WithCancel(r.Context())
	res, err := s.client.Do(r.WithContext(ctx)) //nolint:bodyclose // closed below, once the stream ends
	if err != nil {
		end()
		s.t.Fatal(err)
	}
	out := &stream{t: s.t, lines: make(chan string, 100), end: end, status: res.StatusCode, header: res.Header}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(out.lines)
		defer func() { _ = res.Body.Close() }()
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
				out.lines <- string(data)
			}
		}
	}()
	s.t.Cleanup(func() { end(); <-done })
	return out
}

// next returns the next message, "" if the stream has ended.
func (s *stream) next() string {
	s.t.Helper()
	select {
	case line := <-s.lines:
		return line
	case <-time.After(patience):
		s.t.Fatal("nothing came over the stream")
		return ""
	}
}
