package mcpface

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// Endpoint serves MCP over streamable HTTP: every protocol version that the library
// speaks, those with initialize and 2026-07-28, at one address. It expects that somebody
// in front of it bounds connections, headers, times and requests in flight, checks Host and Origin, and says
// in the request's context who calls (auth.NewContext): it refuses everybody else.
type Endpoint struct {
	server *server.MCPServer
	http   *server.StreamableHTTPServer
	log    *slog.Logger
	limits Limits
	max    int // bytes of one message

	sessions *table
	streams  *quota

	asksAlone bool // the library asks clients nothing, so other answers have no question

	// What the face adds; a server without one has none of it.
	refuse  func(m message, p engine.Principal) *fault
	session func(write func([]byte) error) *session
	check   func(ctx context.Context, s *session) func(uri string) error
	// valid says whether a stream may go on.
	valid func(context.Context, auth.Identity) bool
	// elicits: a call may wait for a person.
	elicits bool

	ending  context.Context //nolint:containedctx // no request's: it ends when streams shall
	endAll  context.CancelFunc
	running sync.WaitGroup // the sweeper, and what belongs to streams
}

// Handler returns the face over HTTP. Call Close when it is not needed any more.
func (f *Face) Handler() *Endpoint {
	e, turn := newEndpoint(f.server, f.cfg), make(chan struct{}, 1)
	e.asksAlone = true
	e.refuse = func(m message, p engine.Principal) *fault { return f.tools.unknown(m, p.Role) }
	e.session = func(write func([]byte) error) *session {
		watching := newWatch(f, write)
		watching.turn = turn
		return &session{remote: true, asks: newAsker(write), watch: watching}
	}
	e.check = f.subscribable
	e.elicits = f.cfg.Elicit
	if f.cfg.StillValid != nil {
		e.valid = f.cfg.StillValid
	}
	return e
}

// newEndpoint is what every server over HTTP has.
func newEndpoint(s *server.MCPServer, cfg Config) *Endpoint {
	e := &Endpoint{
		server: s, log: cfg.Logger, limits: cfg.HTTP, max: cfg.MaxLine, sessions: newTable(cfg.HTTP),
		streams: newQuota(cfg.HTTP.Streams, cfg.HTTP.StreamsEach),
		refuse:  func(message, engine.Principal) *fault { return nil },
		valid:   func(context.Context, auth.Identity) bool { return true },
		session: func(func([]byte) error) *session {
			return &session{remote: true, asks: newAsker(nil), watch: newWatch(nil, nil)}
		},
	}
	e.ending, e.endAll = context.WithCancel(context.Background())
	e.http = server.NewStreamableHTTPServer(s,
		server.WithSessionIdManagerResolver(e.sessions),
		server.WithEventStore(newEvents()),
		server.WithDisableLocalhostProtection(true), // whoever listens knows the allowed hosts
		server.WithStreamableHTTPLogger(slog.New(quiet{cfg.Logger.Handler()})),
		server.WithHTTPContextFunc(e.join),
	)
	e.running.Go(e.sweep)
	return e
}

// EndStreams ends every stream, and the wait for people who were asked, and takes no new
// session or stream; other requests are still answered. It is what a server does first
// when it was told to stop.
func (e *Endpoint) EndStreams() {
	e.endAll()
	e.sessions.endAsking()
}

// Close ends streams and sessions. Requests in flight are the listener's to wait for
// before it is called.
func (e *Endpoint) Close() {
	e.EndStreams()
	e.running.Wait()
	for _, id := range e.sessions.all() {
		e.end(id)
	}
}

// sweep ends sessions that nobody uses any more.
func (e *Endpoint) sweep() {
	t := time.NewTicker(max(e.limits.Idle/4, time.Second))
	defer t.Stop()
	for {
		select {
		case <-e.ending.Done():
			return
		case <-t.C:
			for _, id := range e.sessions.stale(e.limits.Idle) {
				e.end(id)
			}
		}
	}
}

// end ends a session as its client would, so that the library forgets it too.
func (e *Endpoint) end(id string) {
	e.sessions.remove(id)
	r, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, "/", http.NoBody)
	if err != nil {
		return
	}
	r.Header.Set(server.HeaderKeySessionID, id)
	e.http.ServeHTTP(nowhere{http.Header{}}, r)
}

// ServeHTTP answers one request.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := auth.FromContext(r.Context())
	if !ok || who.ID == "" {
		e.answer(w, http.StatusUnauthorized, nil, invalid("Nobody was authenticated.", "Send a credential.").named("unauthenticated"))
		return
	}
	r = r.WithContext(withCaller(r.Context(), who.Principal))
	switch r.Method {
	case http.MethodPost:
		e.post(w, r, who)
	case http.MethodGet:
		e.get(w, r, who)
	case http.MethodDelete:
		e.delete(w, r, who)
	default:
		w.Header().Set("Allow", "POST, GET, DELETE")
		e.answer(w, http.StatusMethodNotAllowed, nil, invalid("The method of the request is none that MCP uses.", "POST messages here.").named("method_not_allowed"))
	}
}

// answer refuses a request.
func (e *Endpoint) answer(w http.ResponseWriter, status int, id []byte, f *fault) {
	body := f.line(id)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	seal(h, len(body))
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}

// named finds the session that a request names, or answers the request itself.
func (e *Endpoint) named(w http.ResponseWriter, r *http.Request, who auth.Identity, id []byte) *remoteSession {
	values := r.Header.Values(server.HeaderKeySessionID)
	if len(values) != 1 || values[0] == "" {
		e.answer(w, http.StatusBadRequest, id, invalid("The request names no session.",
			"Begin with initialize and send the Mcp-Session-Id of its answer once, or use protocol version "+mcp.LATEST_PROTOCOL_VERSION+".").named("session_required"))
		return nil
	}
	s := e.sessions.use(values[0], who.ID)
	if s == nil {
		e.answer(w, http.StatusNotFound, id, invalid("There is no such session.", "Begin a new one with initialize.").named("unknown_session"))
	}
	return s
}

// get serves the stream of a session.
func (e *Endpoint) get(w http.ResponseWriter, r *http.Request, who auth.Identity) {
	if isModern(r, nil) {
		e.pass(w, r, nil)
		return
	}
	if !accepts(r, "text/event-stream") {
		e.answer(w, http.StatusNotAcceptable, nil, invalid("The client does not accept a stream of events.", "Send Accept: text/event-stream.").named("not_acceptable"))
		return
	}
	s := e.named(w, r, who, nil)
	if s == nil {
		return
	}
	defer e.sessions.done(s)
	if f, status := e.mayStream(who); f != nil {
		e.answer(w, status, nil, f)
		return
	}
	defer e.streams.give(who.ID)
	ctx, end := e.streamContext(r.Context(), who)
	defer end()
	out := newReply(w, nil, edited(nil))
	if r.Header.Get("Last-Event-ID") == "" { // else it is what is left of another request
		l := &listening{reply: out, end: end, ended: make(chan struct{})}
		before, again := e.sessions.listens(s, l)
		defer close(l.ended)
		defer e.sessions.unlisten(s, l)
		if before != nil {
			before.end()
			<-before.ended
		}
		if again {
			s.watch.again()
		}
		defer e.background(ctx, end, s.watch.run)()
	}
	defer e.background(ctx, end, func(ctx context.Context) { e.keepAlive(ctx, end, out, who) })()
	e.http.ServeHTTP(out, e.clean(r.WithContext(ctx), nil))
	out.finish()
}

// mayStream takes a place for a stream.
func (e *Endpoint) mayStream(who auth.Identity) (f *fault, status int) {
	if e.ending.Err() != nil {
		return endingFault(), http.StatusServiceUnavailable
	}
	if !e.streams.take(who.ID) {
		return tooManyStreams(), http.StatusTooManyRequests
	}
	return nil, 0
}

func tooManyStreams() *fault {
	return &fault{codeNotNow, "too_many_streams", "Too many streams are open.", "Close those that are not needed."}
}

func endingFault() *fault {
	return &fault{codeNotNow, "unavailable", "The server is ending.", "Try again when it has started anew."}
}

// streamContext ends with the server, the stream's longest time, or the credential.
func (e *Endpoint) streamContext(ctx context.Context, who auth.Identity) (context.Context, context.CancelFunc) {
	until := time.Now().Add(e.limits.Stream)
	if !who.Expires.IsZero() && who.Expires.Before(until) {
		until = who.Expires
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	stop := context.AfterFunc(e.ending, cancel)
	return ctx, func() { stop(); cancel() }
}

// background runs what belongs to a stream; the returned function ends it and waits.
func (e *Endpoint) background(ctx context.Context, end func(), run func(context.Context)) (wait func()) {
	var group sync.WaitGroup
	group.Go(func() { run(ctx) })
	return func() {
		end()
		group.Wait()
	}
}

// keepAlive writes to a stream that is quiet, and ends it when the client is gone or its
// credential is not good any more.
func (e *Endpoint) keepAlive(ctx context.Context, end func(), out *reply, who auth.Identity) {
	t := time.NewTicker(e.limits.Alive)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if out.comment() != nil || !e.valid(ctx, who) {
				end()
				return
			}
		}
	}
}

// delete ends a session.
func (e *Endpoint) delete(w http.ResponseWriter, r *http.Request, who auth.Identity) {
	if isModern(r, nil) {
		e.pass(w, r, nil)
		return
	}
	if s := e.named(w, r, who, nil); s != nil {
		defer e.sessions.done(s)
		e.pass(w, r, nil)
	}
}

// pass has the library answer.
func (e *Endpoint) pass(w http.ResponseWriter, r *http.Request, body []byte) {
	out := newReply(w, nil, edited(nil))
	e.http.ServeHTTP(out, e.clean(r, body))
	out.finish()
}

// clean is a request as the library sees it: with the body that was checked, and without
// what proves who calls, which is nobody's business further on.
func (e *Endpoint) clean(r *http.Request, body []byte) *http.Request {
	h := r.Header.Clone()
	h.Del("Authorization")
	h.Del("Cookie")
	h.Del("Proxy-Authorization")
	r.Header = h // r is a copy of the listener's already
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return r
}

// accepts reports whether the request takes a type. Without the header it takes all.
func accepts(r *http.Request, kind string) bool {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return true
	}
	group, _, _ := strings.Cut(kind, "/")
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			name, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case kind, group + "/*", "*/*":
				return true
			}
		}
	}
	return false
}

// isModern tells requests of the era without sessions.
func isModern(r *http.Request, body []byte) bool {
	return mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion)) || mcp.IsModernProtocol(metaVersion(body))
}

// quiet logs what the library finds wrong with clients as what it is: nothing that an
// operator must know.
type quiet struct{ slog.Handler }

// Enabled reports whether details are wanted.
func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle logs a detail.
func (q quiet) Handle(ctx context.Context, record slog.Record) error {
	record.Level = slog.LevelDebug
	if err := q.Handler.Handle(ctx, record); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return nil
}

// WithAttrs keeps it quiet.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup keeps it quiet.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
