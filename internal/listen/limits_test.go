package listen_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gavel-mcp/gavel/internal/listen"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	const post = "POST / HTTP/1.1\r\nHost: localhost\r\n"
	for _, tt := range []struct {
		name, request string
		status        int
		code          string
	}{
		{"plain", get("/a/b-c_d.e~f"), 200, ""},
		{"last slash", get("/a/"), 200, ""},
		{"query", get("/a?b=..%2f//&c=%00"), 200, ""},
		{"space in a segment", get("/a%20b"), 200, ""},
		{"no host", "GET / HTTP/1.0\r\n\r\n", 403, "host_not_allowed"},
		{"host in HTTP/1.0", "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", 200, ""},
		{"loopback address", "GET / HTTP/1.1\r\nHost: 127.0.0.1:4285\r\n\r\n", 200, ""},
		{"another loopback address", "GET / HTTP/1.1\r\nHost: 127.9.9.9\r\n\r\n", 200, ""},
		{"loopback address 6", "GET / HTTP/1.1\r\nHost: [::1]:9\r\n\r\n", 200, ""},
		{"mapped loopback address", "GET / HTTP/1.1\r\nHost: [::ffff:127.0.0.1]\r\n\r\n", 200, ""},
		{"capitals and a dot", "GET / HTTP/1.1\r\nHost: LOCALHOST.:1\r\n\r\n", 200, ""},
		{"listed host", "GET / HTTP/1.1\r\nHost: Gavel.Example.Org:443\r\n\r\n", 200, ""},
		{"listed host with its port", "GET / HTTP/1.1\r\nHost: ported.example.org:99\r\n\r\n", 200, ""},
		{"listed host with another port", "GET / HTTP/1.1\r\nHost: ported.example.org:98\r\n\r\n", 403, "host_not_allowed"},
		{"rebound name", "GET / HTTP/1.1\r\nHost: evil.example:4285\r\n\r\n", 403, "host_not_allowed"},
		{"loopback as a label", "GET / HTTP/1.1\r\nHost: 127.0.0.1.nip.io\r\n\r\n", 403, "host_not_allowed"},
		{"localhost as a label", "GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 403, "host_not_allowed"},
		{"number", "GET / HTTP/1.1\r\nHost: 2130706433\r\n\r\n", 403, "host_not_allowed"},
		{"unspecified", "GET / HTTP/1.1\r\nHost: 0.0.0.0\r\n\r\n", 403, "host_not_allowed"},
		{"absolute address of another", "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 403, "host_not_allowed"},
		{"absolute address of this", "GET http://localhost/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 200, ""},
		{"same origin", "GET / HTTP/1.1\r\nHost: gavel.example.org\r\nOrigin: http://gavel.example.org\r\n\r\n", 200, ""},
		{"loopback origin", get("/", "Origin: http://localhost:6274"), 200, ""},
		{"listed origin", get("/", "Origin: https://App.example.org"), 200, ""},
		{"listed origin, other scheme", get("/", "Origin: http://app.example.org"), 403, "origin_not_allowed"},
		{"listed origin, other port", get("/", "Origin: https://app.example.org:444"), 403, "origin_not_allowed"},
		{"origin", get("/", "Origin: http://evil.example"), 403, "origin_not_allowed"},
		{"null origin", get("/", "Origin: null"), 403, "origin_not_allowed"},
		{"empty origin", get("/", "Origin: "), 403, "origin_not_allowed"},
		{"user in origin", get("/", "Origin: http://localhost@evil.example"), 403, "origin_not_allowed"},
		{"path in origin", get("/", "Origin: http://localhost/evil.example"), 403, "origin_not_allowed"},
		{"two origins", get("/", "Origin: http://localhost", "Origin: http://evil.example"), 403, "origin_not_allowed"},
		{"preflight", "OPTIONS / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n", 403, "origin_not_allowed"},
		{"preflight of listed", "OPTIONS / HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.example.org\r\nAccess-Control-Request-Method: POST\r\n\r\n", 204, ""},
		{"up", get("/a/../b"), 400, "bad_path"},
		{"up, encoded", get("/a/%2e%2E/b"), 400, "bad_path"},
		{"here", get("/a/./b"), 400, "bad_path"},
		{"up at the end", get("/a/.."), 400, "bad_path"},
		{"empty segment", get("/a//b"), 400, "bad_path"},
		{"two slashes", get("//a"), 400, "bad_path"},
		{"slash, encoded", get("/a%2fb"), 400, "bad_path"},
		{"up and slash, encoded", get("/..%2F..%2fetc"), 400, "bad_path"},
		{"twice encoded", get("/a%252fb"), 400, "bad_path"},
		{"backslash", get(`/a\b`), 400, "bad_path"},
		{"backslash, encoded", get("/a%5cb"), 400, "bad_path"},
		{"NUL", get("/a%00"), 400, "bad_path"},
		{"line end", get("/a%0d%0ab"), 400, "bad_path"},
		{"parameters", get("/a;b/c"), 400, "bad_path"},
		{"CONNECT", "CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"},
		{"TRACE", "TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"},
		{"HTTP/2 without being asked", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 405, "method_not_allowed"},
		{"large headers", get("/", "X: "+strings.Repeat("x", 2<<10)), 431, "header_too_large"},
		{"many headers", get("/", strings.Split(strings.Repeat("X:,", 100)+"X:", ",")...), 431, "header_too_large"},
		{"long address", get("/" + strings.Repeat("a", 9<<10)), 414, "address_too_long"},
		{"body", post + "Content-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000), 200, ""},
		{"long body", post + "Content-Length: 1001\r\n\r\n" + strings.Repeat("x", 1001), 413, "body_too_large"},
		{"long body, announced only", post + "Content-Length: 9000000000\r\n\r\n", 413, "body_too_large"},
		{"chunked body", post + "Transfer-Encoding: chunked\r\n\r\n3e8\r\n" + strings.Repeat("x", 1000) + "\r\n0\r\n\r\n", 200, ""},
		{"long chunked body", post + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + strings.Repeat("x", 1001) + "\r\n0\r\n\r\n", 413, "body_too_large"},
		{"bad chunk", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n", 400, "body_broken"},
		{"packed body", post + "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 415, "encoding_not_supported"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := listen.Config{
				MaxBody: 1000, MaxHeader: 2 << 10, AllowedOrigins: []string{"https://app.example.org"},
				AllowedHosts: []string{"gavel.example.org", "ported.example.org:99"},
			}
			if tt.status == http.StatusRequestURITooLong {
				cfg.MaxHeader = 0 // the default: the address counts as a header, too
			}
			inBubble(t, cfg, reads, func(b *bench) {
				resp := b.dial().send(tt.request).answer()
				if resp == nil || resp.StatusCode != tt.status {
					t.Fatalf("got %v, want %d", resp, tt.status)
				}
				if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Server") != "" {
					t.Errorf("headers: %v", resp.Header)
				}
				if tt.code != "" && code(t, resp) != tt.code {
					t.Errorf("code is not %s", tt.code)
				}
				if again := b.dial().send(get("/")).answer(); again == nil || again.StatusCode != http.StatusOK {
					t.Errorf("the server does not answer any more: %v", again)
				}
			})
		})
	}
}

// TestCORS checks that only pages of listed origins may read.
func TestCORS(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{AllowedOrigins: []string{"https://app.example.org"}}, fine, func(b *bench) {
		for origin, want := range map[string]string{"https://app.example.org": "https://app.example.org", "http://localhost:3000": ""} {
			resp := b.dial().send(get("/", "Origin: "+origin)).answer()
			if resp == nil || resp.Header.Get("Access-Control-Allow-Origin") != want || resp.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s: %v", origin, resp)
			}
		}
	})
}

// TestTwoLengths checks that nothing is answered after a request whose length two servers may understand differently.
func TestTwoLengths(t *testing.T) {
	t.Parallel()
	asked := 0
	inBubble(t, listen.Config{}, func(w http.ResponseWriter, r *http.Request) { asked++; reads(w, r) }, func(b *bench) {
		c := b.dial().send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get("/smuggled"))
		resp := c.answer()
		if resp == nil {
			t.Fatal("no answer")
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if next := c.answer(); next != nil {
			t.Errorf("what followed was answered: %s", next.Status)
		}
		if asked != 1 {
			t.Errorf("%d requests, want 1", asked)
		}
	})
}

// TestStreams checks that streams do not use the slots of requests, and that one too many is refused.
func TestStreams(t *testing.T) {
	t.Parallel()
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			fine(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Mcp-Session-Id", "x")
		if err := http.NewResponseController(w).Flush(); err != nil && r.Context().Err() == nil {
			t.Errorf("refused, and the handler is not told: %v", err)
		}
		<-r.Context().Done()
	}
	inBubble(t, listen.Config{MaxRequests: 1, MaxStreams: 4}, h, func(b *bench) {
		open := []*caller{}
		for range 2 { // the limit for a caller
			c := b.dial().send(get("/stream"))
			if resp := c.answer(); resp == nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%v", resp)
			}
			open = append(open, c)
		}
		resp := b.dial().send(get("/stream")).answer()
		if got := code(t, resp); resp.StatusCode != http.StatusServiceUnavailable || got != "overloaded" || resp.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s %s", resp.Status, got)
		}
		synctest.Wait()
		if resp := b.dial().send(get("/")).answer(); resp == nil || resp.StatusCode != http.StatusOK {
			t.Errorf("requests have no place beside streams: %v", resp)
		}
		if resp := b.dial().send(get("/stream", "X-Caller: other")).answer(); resp == nil || resp.StatusCode != http.StatusOK {
			t.Errorf("another caller's stream: %v", resp)
		}
		_ = open[0].Close()
		synctest.Wait()
		if resp := b.dial().send(get("/stream")).answer(); resp == nil || resp.StatusCode != http.StatusOK {
			t.Errorf("the place of a stream that ended is not free: %v", resp)
		}
	})
}

func TestPanics(t *testing.T) {
	t.Parallel()
	h := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/late":
			fine(w, r)
			w.(http.Flusher).Flush()
			panic("secret")
		case "/early":
			panic("secret")
		}
		fine(w, r)
	}
	inBubble(t, listen.Config{}, h, func(b *bench) {
		resp := b.dial().send(get("/early")).answer()
		if got := code(t, resp); resp.StatusCode != http.StatusInternalServerError || got != "internal" {
			t.Errorf("%s %s", resp.Status, got)
		}
		resp = b.dial().send(get("/late")).answer()
		if all, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("half an answer looks whole: %q", all)
		}
		if resp := b.dial().send(get("/")).answer(); resp == nil || resp.StatusCode != http.StatusOK {
			t.Errorf("afterwards: %v", resp)
		}
	})
}
