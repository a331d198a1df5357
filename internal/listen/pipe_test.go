package listen_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gavel-mcp/gavel/internal/listen"
)

// pipes is an in-memory listener, so that tests can control time.
type pipes struct {
	conns chan net.Conn
	fail  chan error // for the next Accept
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case err := <-p.fail:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4285} }

// admitting admits requests to next, except those for unlimited paths. Callers send their names.
func admitting(unlimited []string, next http.Handler) http.Handler {
	known := listen.Admit(func(ctx context.Context) string {
		name, _ := ctx.Value(callerKey{}).(string)
		return name
	}, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(unlimited, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		known.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, r.Header.Get("X-Caller"))))
	})
}

type callerKey struct{}

// bench is a server over pipes. Its methods must be called inside a synctest bubble.
type bench struct {
	t      *testing.T
	pipes  *pipes
	server *listen.Server
	stop   func()
	ended  chan error
	// handle answers requests. Everything that it waits for must be created inside the bubble.
	handle http.HandlerFunc
	open   []net.Conn // the callers' sides
}

// hangUp closes every connection.
func (b *bench) hangUp() {
	for _, c := range b.open {
		_ = c.Close()
	}
}

func inBubble(t *testing.T, cfg listen.Config, h http.HandlerFunc, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, pipes: &pipes{conns: make(chan net.Conn), fail: make(chan error), done: make(chan struct{})}, ended: make(chan error, 1), handle: h}
		if cfg.Handler == nil {
			inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.handle(w, r) })
			cfg.Handler = admitting(cfg.Unlimited, inner)
		}
		cfg.Listener, cfg.Logger = b.pipes, slog.New(slog.DiscardHandler)
		ctx, stop := context.WithCancel(t.Context())
		b.stop = stop
		s, err := listen.New(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		b.server = s
		go func() { b.ended <- s.Serve(ctx) }()
		test(b)
		stop()
		if err := <-b.ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// caller is the client's side of a connection.
type caller struct {
	net.Conn
	t      *testing.T
	reader *bufio.Reader
}

func (b *bench) dial() *caller { return b.dialFrom("127.0.0.1") }

// dialFrom connects from an address.
func (b *bench) dialFrom(address string) *caller {
	here, there := net.Pipe()
	b.pipes.conns <- remote{there, address}
	b.open = append(b.open, here)
	b.t.Cleanup(func() { _ = here.Close() })
	return &caller{Conn: here, t: b.t, reader: bufio.NewReader(here)}
}

// remote is a connection from an address.
type remote struct {
	net.Conn
	address string
}

func (r remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(r.address), Port: 1} }

// send writes in the background, because a pipe has no buffer and a server that refuses a request reads no further.
func (c *caller) send(text string) *caller {
	go func() { _, _ = io.WriteString(c, text) }()
	return c
}

// answered is an answer whose body need not be closed: the connection ends with the test.
type answered struct {
	StatusCode int
	Status     string
	Header     http.Header
	Close      bool
	Body       io.Reader
}

// answer reads an answer; nil if the connection ended instead.
func (c *caller) answer() *answered {
	c.t.Helper()
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil
	}
	c.t.Cleanup(func() { _ = resp.Body.Close() })
	return &answered{resp.StatusCode, resp.Status, resp.Header, resp.Close, resp.Body}
}

// code returns the code of an answer that must be a problem.
func code(t *testing.T, resp *answered) string {
	t.Helper()
	if resp == nil {
		t.Fatal("the connection ended without an answer")
	}
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("%s: Content-Type %q, want a problem", resp.Status, got)
	}
	var p struct {
		Type, Title, Detail, Code string
		Status                    int
	}
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.Status != resp.StatusCode || p.Title == "" || p.Detail == "" || p.Type != "about:blank" {
		t.Errorf("%s: not a whole problem: %+v", resp.Status, p)
	}
	return p.Code
}

// get returns a request without a body; more are header lines.
func get(path string, more ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(more, ""), "\r\n") + "\r\n"
}

func fine(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fine") }
