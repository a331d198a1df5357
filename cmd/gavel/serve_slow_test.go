package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// connect opens a connection to a server and sends a text.
func (s *served) connect(text string) net.Conn {
	s.t.Helper()
	conn, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, strings.ReplaceAll(text, "{HOST}", strings.TrimPrefix(s.url, "http://"))); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// eventually repeats a request until it gets the given status.
func (s *served) eventually(token, path string, want int) {
	s.t.Helper()
	limit := time.After(2 * patience)
	for {
		status, _, err := s.try(token, http.MethodGet, path, "")
		if err == nil && status == want {
			return
		}
		select {
		case <-limit:
			s.t.Fatalf("%s: %d %v, want %d", path, status, err, want)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestSlowHTTP: clients that send slowly are cut off, however many there are, and other clients are served in the
// meantime.
func TestSlowHTTP(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--read-header-timeout", "3s", "--body-timeout", "3s")
	var headers, bodies []net.Conn
	for range 30 {
		headers = append(headers, s.connect("GET /healthz HTTP/1.1\r\nHost: {HOST}\r\nX-Slow: "))
		bodies = append(bodies, s.connect("POST /v1/instances HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nAuthorization: Bearer "+s.agent+"\r\nContent-Length: 1000\r\n\r\n{"))
	}
	s.eventually(s.agent, "/v1/whoami", http.StatusOK)
	for _, conn := range headers {
		if answer, err := io.ReadAll(conn); err != nil || len(answer) > 0 {
			t.Errorf("slow headers: %q %v, want an end without an answer", answer, err)
		}
	}
	for _, conn := range bodies {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("slow body: %v", err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(body), `"body_too_slow"`) {
			t.Errorf("slow body: %s %s", resp.Status, body)
		}
	}
	s.eventually(s.agent, "/v1/whoami", http.StatusOK)
}

// stream opens an event stream and returns its status.
func (s *served) stream(token string) (net.Conn, int) {
	s.t.Helper()
	conn := s.connect("GET /v1/events HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\nAuthorization: Bearer " + token + "\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // that would wait for the stream's end; the connection is closed
	if err != nil {
		s.t.Fatal(err)
	}
	return conn, resp.StatusCode
}

// TestStreamHoarding: no principal gets unlimited streams, and everything else keeps working.
func TestStreamHoarding(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--max-streams", "12")
	other, third := s.token("other"), s.token("third")
	hoard := func(token string) (open []net.Conn) {
		for range 20 {
			conn, status := s.stream(token)
			if status != http.StatusOK {
				if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
					t.Errorf("one stream too many: %d", status)
				}
				return open
			}
			open = append(open, conn)
		}
		t.Error("no limit")
		return open
	}
	first := hoard(s.agent)
	if len(first) == 0 || len(first) >= 12 {
		t.Errorf("one principal has %d of 12 streams", len(first))
	}
	hoard(other) // takes the remaining streams
	if _, status := s.stream(third); status != http.StatusServiceUnavailable {
		t.Errorf("the thirteenth stream: %d", status)
	}
	for _, token := range []string{s.agent, third} {
		s.must(token, http.MethodGet, "/v1/whoami", "")
	}
	for _, conn := range first {
		_ = conn.Close()
	}
	for limit := time.Now().Add(2 * patience); ; {
		if _, status := s.stream(third); status == http.StatusOK {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("streams that ended keep their places")
		}
	}
}

// TestSilentConnections: silent connections, with or without a token, lock no one out, and health requests are
// answered.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--max-conns", "20")
	other := s.token("other")
	for range 80 {
		s.connect("")
	}
	s.othersAreServed(s.owner, other)
	for range 40 {
		s.connect("GET /v1/whoami HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer " + s.agent + "\r\n\r\n")
	}
	s.othersAreServed(s.owner, other)
}

// TestHalfSentRequests: incomplete requests of one principal lock no one out.
func TestHalfSentRequests(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--max-requests", "16")
	other := s.token("other")
	for range 60 {
		s.beginRequest("/v1/instances", 1000, "{") // it is attributed to the agent: before authentication it would count for the address, which the others share
	}
	s.othersAreServed(s.owner, other)
}

// othersAreServed makes requests as each of the callers, over separate connections.
func (s *served) othersAreServed(tokens ...string) {
	s.t.Helper()
	for range 10 {
		for _, token := range tokens {
			s.client.CloseIdleConnections()
			s.must(token, http.MethodGet, "/v1/whoami", "")
			if status, body := s.ask(token, http.MethodPost, "/v1/instances", `{"type":"nothing"}`); status != http.StatusNotFound {
				s.t.Errorf("a POST: %d %v", status, body)
			}
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			s.client.CloseIdleConnections()
			if status, body, err := s.try("", http.MethodGet, path, ""); err != nil || status != http.StatusOK {
				s.t.Errorf("%s: %d %v %v", path, status, body, err)
			}
		}
	}
}
