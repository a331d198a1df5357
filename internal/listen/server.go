// Package listen is the only entry from the network: a hardened HTTP listener.
//
// It guarantees:
//
//   - A request reaches a handler only if the operator allows its Host and Origin, so that a web page cannot reach a local
//     gavel by DNS rebinding.
//   - Headers, bodies, connections, requests and their time are limited.
//   - No caller can keep others out by using up these limits.
//   - At shutdown, requests that have begun are finished before it returns.
//
// It must never know what a request means, and never log a header or a body.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// shutdownGrace is how long handlers may take to notice that they were cut off.
const shutdownGrace = 2 * time.Second

// Server is a listener.
type Server struct {
	cfg      Config
	tls      *tls.Config
	listener *limitedListener
	addr     net.Addr
	loopback bool
	hosts    map[string]bool // in lower case
	origins  map[string]bool

	arriving *evictionPool // requests that are not admitted yet
	bodies   *evictionPool // bytes of bodies in memory
	requests *fairshare.Queue
	streams  *fairshare.Queue
	draining chan struct{}
	inFlight sync.WaitGroup
}

// New returns a Server that is already listening, so that its address is known. Connections wait until Serve is
// called. An error names what cannot be used.
func New(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Handler == nil || cfg.Logger == nil {
		return nil, errors.New("listen: config needs Handler and Logger")
	}
	secure, err := newTLS(cfg)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	inner := cfg.Listener
	if inner == nil {
		if inner, err = new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
	}
	s := &Server{
		cfg: cfg, tls: secure, listener: &limitedListener{Listener: inner, conns: newEvictionPool(int64(cfg.MaxConns)), spare: newEvictionPool(int64(cfg.MaxConns))}, addr: inner.Addr(),
		hosts: map[string]bool{}, origins: map[string]bool{},
		arriving: newEvictionPool(int64(cfg.MaxRequests)), bodies: newEvictionPool(maxBodiesInMemory * cfg.MaxBody),
		requests: fairshare.New(fairshare.Config{Permits: cfg.MaxRequests, Waiting: cfg.MaxRequests, Wait: admitTimeout}),
		streams:  fairshare.New(fairshare.Config{Permits: cfg.MaxStreams}),
		draining: make(chan struct{}),
	}
	s.loopback = loopbackAddr(s.addr)
	for _, h := range cfg.AllowedHosts {
		s.hosts[strings.ToLower(h)] = true
	}
	for _, o := range cfg.AllowedOrigins {
		s.origins[strings.ToLower(o)] = true
	}
	return s, nil
}

func loopbackAddr(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() net.Addr { return s.addr }

// URL returns the address for callers on this machine, such as http://127.0.0.1:4285.
func (s *Server) URL() string {
	scheme := "http://"
	if s.tls != nil {
		scheme = "https://"
	}
	if tcp, ok := s.addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return scheme + net.JoinHostPort("localhost", fmt.Sprint(tcp.Port))
	}
	return scheme + s.addr.String()
}

// Stats holds a Server's current counts.
type Stats struct {
	Connections, Arriving int64 // Arriving: requests that are not admitted yet
	BodyBytes             int64 // of bodies in memory
	Requests, Streams     fairshare.Stats
	// EvictedConnections and EvictedRequests (which had not begun) were evicted in favour of others.
	EvictedConnections, EvictedRequests uint64
}

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	out := Stats{Requests: s.requests.Stats(), Streams: s.streams.Stats()}
	usual, evicted := s.listener.conns.stats()
	spare, evictedSpare := s.listener.spare.stats()
	out.Connections, out.EvictedConnections = usual+spare, evicted+evictedSpare
	var forPlace, forBytes uint64
	out.Arriving, forPlace = s.arriving.stats()
	out.BodyBytes, forBytes = s.bodies.stats()
	out.EvictedRequests = forPlace + forBytes
	return out
}

// Close closes a Server that was never served.
func (s *Server) Close() error { return s.listener.Close() }

// Serve answers requests until ctx ends. It then accepts no more connections, ends event streams, and lets requests
// in flight finish for DrainTimeout. It cuts off the rest and returns nil. It may be called only once.
func (s *Server) Serve(ctx context.Context) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	base = WithDraining(base, s.draining)
	srv := &http.Server{
		Handler: http.HandlerFunc(s.serveRequest), TLSConfig: s.tls,
		ReadHeaderTimeout: s.cfg.ReadHeaderTimeout, IdleTimeout: s.cfg.IdleTimeout,
		// Headers of more than twice the limit are not read at all.
		MaxHeaderBytes:               2 * s.cfg.MaxHeader,
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  withConn,
		ErrorLog:                     slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		if s.tls != nil {
			ended <- srv.ServeTLS(s.listener, "", "")
		} else {
			ended <- srv.Serve(s.listener)
		}
	}()
	select {
	case err := <-ended:
		close(s.draining)
		cut()
		s.inFlight.Wait()
		return fmt.Errorf("listen: %w", err)
	case <-ctx.Done():
	}
	err := s.drain(srv, cut)
	if failed := <-ended; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}

func (s *Server) drain(srv *http.Server, cut func()) error {
	close(s.draining)
	if s.cfg.OnDrain != nil {
		s.cfg.OnDrain()
	}
	limit, done := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer done()
	err := srv.Shutdown(limit)
	if errors.Is(err, context.DeadlineExceeded) {
		s.cfg.Logger.Warn("requests did not finish in time and were cut off", "waited", s.cfg.DrainTimeout)
		err = nil
	}
	cut()
	err = errors.Join(err, ignoreClosed(srv.Close()))
	finished := make(chan struct{})
	go func() {
		s.inFlight.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(shutdownGrace):
		s.cfg.Logger.Warn("shut down without waiting for requests that ignore their cancellation")
	}
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// serveRequest handles every request before it reaches the handler.
func (s *Server) serveRequest(w http.ResponseWriter, r *http.Request) {
	s.inFlight.Add(1)
	defer s.inFlight.Done()
	control := http.NewResponseController(w)
	if s.cfg.Wrap != nil {
		w = s.cfg.Wrap(w, r)
	}
	setSecurityHeaders(w.Header())
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// A proxy in front may have determined another length. The next bytes on this connection may then not be what
		// they seem.
		w.Header().Set("Connection", "close")
	}
	b := newBody(r, control, s.cfg.MaxBody, s.cfg.BodyTimeout)
	defer b.finish()
	a := &responseWriter{ResponseWriter: w, server: s, control: control, body: b, cancel: cancel}
	a.conn, _ = ctx.Value(connKey{}).(*limitedConn) // every connection is a limitedConn
	r = r.WithContext(context.WithValue(ctx, writerKey{}, a))
	r.Body = b
	a.request = r
	a.countArrival(r)
	defer a.end()
	if a.conn.over {
		w.Header().Set("Connection", "close")
		if !slices.Contains(s.cfg.Unlimited, r.URL.Path) {
			a.refuse(tooManyConns)
			return
		}
	}
	if p, fine := s.checkRequest(r); !fine {
		a.refuse(p)
		return
	}
	if s.handleCORS(a, r) {
		return
	}
	defer s.answerPanic(a)
	s.cfg.Handler.ServeHTTP(a, r)
}

// setSecurityHeaders sets headers for every answer; handlers may replace them.
func setSecurityHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
}

// answerPanic answers instead of a handler that panicked.
func (s *Server) answerPanic(a *responseWriter) {
	cause := recover()
	switch {
	case cause == nil:
		return
	case cause == http.ErrAbortHandler: //nolint:errorlint // a sentinel by contract, never wrapped
		panic(cause)
	}
	s.cfg.Logger.Error("a request's handler panicked", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if a.started {
		panic(http.ErrAbortHandler) // cut off, so that no one takes half an answer for a complete one
	}
	a.refuse(failed)
}

type drainKey struct{}

// Draining returns a channel that is closed when the request's server begins to shut down. If ctx does not belong to
// such a request, the channel is nil and never closed. Anything that lasts until its caller leaves must then end,
// above all waiting for events. Requests that do work continue.
func Draining(ctx context.Context) <-chan struct{} {
	ch, _ := ctx.Value(drainKey{}).(<-chan struct{})
	return ch
}

// WithDraining returns a context with the given Draining channel, for handlers that are not served by a Server.
func WithDraining(ctx context.Context, draining <-chan struct{}) context.Context {
	return context.WithValue(ctx, drainKey{}, draining)
}
