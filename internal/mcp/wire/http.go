package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/fairshare"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Endpoint serves MCP over streamable HTTP at one address, for all protocol versions: those with initialize and
// 2026-07-28. It expects a layer in front of it that limits connections, headers, times and requests in flight, and
// that checks Host and Origin. That layer stores the caller's identity in the request's context (auth.NewContext).
// Requests without an identity are rejected.
type Endpoint struct {
	wire      *Wire
	sessions  *sessionTable
	streams   *fairshare.Queue
	checkLock chan struct{} // shared by the watches of all sessions

	ending  context.Context //nolint:containedctx // not a request's: it ends when streams must end
	endAll  context.CancelFunc
	sweeper sync.WaitGroup
}

// Handler returns a handler that serves the wire over HTTP. Callers must call Close when done with it.
func (w *Wire) Handler() *Endpoint {
	e := &Endpoint{
		wire: w, sessions: newTable(w.cfg.Limits), streams: newSlots(w.cfg.Limits.Streams, w.cfg.Limits.StreamsEach), checkLock: make(chan struct{}, 1),
	}
	e.ending, e.endAll = context.WithCancel(context.Background())
	e.sweeper.Go(e.sweep)
	return e
}

// EndStreams ends every stream and stops waiting for clients' answers to server requests. It accepts no new session
// or stream afterwards; other requests are still answered. Call it first when the server shuts down.
func (e *Endpoint) EndStreams() {
	e.endAll()
	for _, s := range e.sessions.all() {
		s.requester.end()
	}
}

// Close ends streams and sessions. The listener must wait for requests in flight before it calls Close.
func (e *Endpoint) Close() {
	e.EndStreams()
	e.sweeper.Wait()
	for _, s := range e.sessions.all() {
		e.sessions.remove(s)
	}
}

// CountOpen returns the number of open sessions and streams.
func (e *Endpoint) CountOpen() int { return e.sessions.slots.Stats().Held + e.streams.Stats().Held }

func (e *Endpoint) sweep() {
	idle := e.wire.cfg.Limits.Idle
	t := time.NewTicker(max(idle/4, time.Second))
	defer t.Stop()
	for {
		select {
		case <-e.ending.Done():
			return
		case <-t.C:
			for _, s := range e.sessions.idle("", idle) {
				e.sessions.remove(s)
			}
		}
	}
}

// exchange is one HTTP request and its response.
type exchange struct {
	*Endpoint
	w   http.ResponseWriter
	r   *http.Request
	who auth.Identity
	message
	modern bool // 2026-07-28, which has no sessions
}

// ServeHTTP answers one HTTP request.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := auth.FromContext(r.Context())
	x := &exchange{Endpoint: e, w: w, r: r.WithContext(WithCaller(r.Context(), who.Principal)), who: who, modern: mcp.IsModernProtocol(r.Header.Get(mcp.HeaderProtocolVersion))}
	switch {
	case !ok || who.ID == "":
		x.refuse(http.StatusUnauthorized, invalidAs("unauthenticated", "The request is not authenticated.", "Send a credential."))
	case r.Method == http.MethodPost:
		x.post()
	case r.Method != http.MethodGet && r.Method != http.MethodDelete:
		w.Header().Set("Allow", "POST, GET, DELETE")
		x.refuse(http.StatusMethodNotAllowed, invalidAs("method_not_allowed", "MCP does not use this HTTP method.", "POST messages here."))
	case x.modern:
		w.Header().Set("Allow", "POST")
		x.refuse(http.StatusMethodNotAllowed, invalidAs("method_not_allowed", "Protocol version "+mcp.LATEST_PROTOCOL_VERSION+" has no sessions.", "POST messages here; subscriptions/listen follows changes."))
	case x.hasUnknownVersion():
	case r.Method == http.MethodGet:
		x.get()
	default:
		if s := x.session(); s != nil {
			defer e.sessions.release(s)
			e.sessions.remove(s)
			writeJSON(w, http.StatusOK, nil)
		}
	}
}

func (ex *exchange) refuse(status int, err *Error) { writeJSON(ex.w, status, err.line(ex.id)) }

// hasUnknownVersion rejects a request whose header names an unknown protocol version, and reports whether it did.
// Versions with initialize may omit the header.
func (ex *exchange) hasUnknownVersion() bool {
	version := ex.r.Header.Get(mcp.HeaderProtocolVersion)
	if version == "" || mcp.IsValidProtocolVersion(version) {
		return false
	}
	ex.refuse(http.StatusBadRequest, invalidRequest("The server does not support the protocol version in the header.", "It supports "+strings.Join(mcp.ValidProtocolVersions, ", ")+"."))
	return true
}

// session returns the session that a request names. If there is none, it answers the request and returns nil.
func (ex *exchange) session() *remoteSession {
	values := ex.r.Header.Values(mcp.HeaderSessionID)
	if len(values) != 1 || values[0] == "" {
		ex.refuse(http.StatusBadRequest, invalidAs("session_required", "The request names no session.",
			"Begin with initialize and send the Mcp-Session-Id of its answer once, or use protocol version "+mcp.LATEST_PROTOCOL_VERSION+"."))
		return nil
	}
	s := ex.sessions.acquire(values[0], ex.who.ID)
	if s == nil {
		ex.refuse(http.StatusNotFound, invalidAs("unknown_session", "There is no such session.", "Begin a new one with initialize."))
	}
	return s
}

// acceptsEvents reports whether the client accepts an event stream. A client that does not gets its answer as JSON,
// without the notifications that would precede it.
func (ex *exchange) acceptsEvents() bool { return listen.AcceptQuality(ex.r, "text/event-stream") > 0 }

func (ex *exchange) refuseEvents() {
	ex.refuse(http.StatusNotAcceptable, invalidAs("not_acceptable", "The client does not accept a stream of events.", "Send Accept: text/event-stream."))
}

func (ex *exchange) get() {
	if !ex.acceptsEvents() {
		ex.refuseEvents()
		return
	}
	s := ex.session()
	if s == nil {
		return
	}
	defer ex.sessions.release(s)
	if ex.r.Header.Get(mcp.HeaderLastEventID) != "" { // events have no ids: a new stream announces again any change that may be lost
		ex.refuse(http.StatusBadRequest, invalidRequest("The server cannot resume from this event.", "Open the stream without Last-Event-ID."))
		return
	}
	release, ok := ex.reserveStream()
	if !ok {
		return
	}
	defer release()
	ctx, end := ex.streamContext()
	defer end()
	out := ex.reply(end)
	l := &sessionStream{write: out.send, end: end, ended: make(chan struct{})}
	before, again := ex.sessions.listen(s, l)
	defer close(l.ended)
	defer ex.sessions.unlisten(s, l)
	if before != nil {
		before.end()
		<-before.ended
	}
	lists := ex.wire.changingLists(ex.who.Principal, nil)
	out.open()
	if again {
		s.watch.announceAgain()
	}
	var background sync.WaitGroup
	background.Go(func() { s.watch.run(ctx) })
	background.Go(func() { announceLists(ctx, lists, nil, out.send) })
	<-ctx.Done()
	background.Wait()
	out.finish(0, nil)
}

// reserveStream reserves a stream. If that is not possible, it answers the request and returns false.
func (ex *exchange) reserveStream() (release func(), ok bool) {
	if ex.ending.Err() != nil {
		ex.refuse(http.StatusServiceUnavailable, errEnding())
		return nil, false
	}
	if release, ok = ex.streams.TryAcquire(ex.who.ID); !ok {
		ex.refuse(http.StatusTooManyRequests, errStreams())
	}
	return release, ok
}

func errStreams() *Error {
	return newError(codeNotNow, "too_many_streams", "Too many streams are open.", "Close those that are not needed.")
}

func errEnding() *Error {
	return newError(codeNotNow, "unavailable", "The server is shutting down.", "Try again once it has restarted.")
}

// streamContext returns a context that ends with the server, at the stream's maximum lifetime, or when the credential
// expires.
func (ex *exchange) streamContext() (context.Context, context.CancelFunc) {
	until := time.Now().Add(ex.wire.cfg.Limits.Stream)
	if !ex.who.Expires.IsZero() && ex.who.Expires.Before(until) {
		until = ex.who.Expires
	}
	ctx, cancel := context.WithDeadline(ex.r.Context(), until)
	stop := context.AfterFunc(ex.ending, cancel)
	return ctx, func() { stop(); cancel() }
}

func (ex *exchange) reply(end context.CancelFunc) *reply {
	return &reply{
		w: ex.w, plain: !ex.acceptsEvents(), end: end, alive: ex.wire.cfg.Limits.Alive, stop: make(chan struct{}),
		valid: func() bool { return ex.wire.cfg.StillValid(ex.r.Context(), ex.who) },
	}
}

func (ex *exchange) post() {
	if err, status := checkHeaders(ex.r); err != nil {
		ex.refuse(status, err)
		return
	}
	body, err, status := ex.read()
	if err != nil {
		ex.refuse(status, err)
		return
	}
	if ex.message, err = parseMessage(body); err != nil {
		ex.refuse(http.StatusBadRequest, err)
		return
	}
	version := ex.protocol.ProtocolVersion()
	ex.modern = ex.modern || mcp.IsModernProtocol(version)
	switch {
	case ex.modern && ex.method == methodCancelled: // in 2026-07-28, closing the connection cancels the request
		ex.accept()
	case ex.modern && ex.response: // 2026-07-28 has no server requests
		ex.rejectReply()
	case ex.modern:
		if err := ex.checkModern(version); err != nil {
			ex.refuse(http.StatusBadRequest, err)
			return
		}
		ex.answer(ex.newSession(nil), nil)
	case ex.method == methodInitialize && ex.id == nil:
		ex.refuse(http.StatusBadRequest, invalidRequest("initialize has no id.", "It is a request, so send an id."))
	case ex.method == methodInitialize:
		ex.initialize()
	case ex.hasUnknownVersion():
	default:
		if s := ex.session(); s != nil {
			defer ex.sessions.release(s)
			ex.handleInSession(s)
		}
	}
}

func (ex *exchange) accept() { writeJSON(ex.w, http.StatusAccepted, nil) }

// rejectReply rejects a client's answer that matches no pending question. It accepts an empty answer, which clients
// send in reply to a ping.
func (ex *exchange) rejectReply() {
	if result := string(ex.result); result == "{}" || result == "null" {
		ex.accept()
		return
	}
	ex.refuse(http.StatusBadRequest, invalidRequest("No question with this id is waiting for an answer.", "It came too late, or belongs to another session."))
}

// handleInSession handles a message in a session, for protocol versions with initialize.
func (ex *exchange) handleInSession(s *remoteSession) {
	switch {
	case ex.response && s.requester.deliver(ex.message):
		ex.accept()
	case ex.response:
		ex.rejectReply()
	case ex.method == methodCancelled:
		if ex.cancels != nil && checkID(ex.cancels) == nil {
			if end, ok := s.running.Load(idKey(ex.cancels)); ok {
				(*end.(*context.CancelFunc))() //nolint:forcetypeassert // stored by answer
			}
		}
		ex.accept()
	default:
		ex.answer(s.session, &s.running)
	}
}

func checkHeaders(r *http.Request) (err *Error, status int) {
	kind, params, bad := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	switch {
	case bad != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8"):
		return invalidAs("unsupported_media_type", "The content type is not JSON.", "Send Content-Type: application/json."), http.StatusUnsupportedMediaType
	case r.Header.Get("Content-Encoding") != "" && r.Header.Get("Content-Encoding") != "identity":
		return invalidAs("unsupported_media_type", "The content is encoded.", "Send it without Content-Encoding."), http.StatusUnsupportedMediaType
	case listen.AcceptQuality(r, "application/json") == 0: // many clients send only this one
		return invalidAs("not_acceptable", "The client does not accept the answers of MCP.", "Send Accept: application/json, text/event-stream."), http.StatusNotAcceptable
	case len(r.Header.Values(mcp.HeaderProtocolVersion)) > 1:
		return invalidRequest("The protocol version appears twice in the header.", "Send "+mcp.HeaderProtocolVersion+" once."), http.StatusBadRequest
	}
	return nil, 0
}

// read returns the body, up to the maximum message size.
func (ex *exchange) read() (body []byte, err *Error, status int) {
	body, bad := io.ReadAll(http.MaxBytesReader(ex.w, ex.r.Body, int64(ex.wire.cfg.Limits.MaxLine)))
	var large *http.MaxBytesError
	switch {
	case errors.As(bad, &large):
		return nil, newError(codeInvalidRequest, "too_large", "The message is too large.", "Send less; keep large content elsewhere and refer to it."), http.StatusRequestEntityTooLarge
	case bad != nil:
		return nil, invalidRequest("The message is incomplete.", "Send it again."), http.StatusBadRequest
	}
	if body = bytes.Trim(body, " \t\r\n"); len(body) == 0 {
		return nil, newError(codeParse, "parse_error", "The message is empty.", "Send one JSON-RPC message."), http.StatusBadRequest
	}
	return body, nil, 0
}

// checkModern checks the headers in which 2026-07-28 repeats parts of the message for proxies in front of a server.
func (ex *exchange) checkModern(version string) *Error {
	h := ex.r.Header
	mismatch := func(reason string) *Error {
		return newError(mcp.HEADER_MISMATCH, "header_mismatch", reason, "Send the headers of protocol version "+mcp.LATEST_PROTOCOL_VERSION+" with the same values as the message.")
	}
	switch header := h.Get(mcp.HeaderProtocolVersion); {
	case h.Get(mcp.HeaderLastEventID) != "":
		return mismatch("Streams cannot be resumed, and the request has a Last-Event-ID.")
	case header == "":
		return mismatch("The header " + mcp.HeaderProtocolVersion + " is missing.")
	case version == "":
		return newError(codeInvalidParams, "invalid_request", "The member params._meta has no "+mcp.MetaKeyProtocolVersion+".", "Send the protocol version with every request.")
	case header != version:
		return mismatch("The header " + mcp.HeaderProtocolVersion + " and the message name different versions.")
	case ex.id == nil || !mcp.IsValidProtocolVersion(version):
		return nil // an unknown version is rejected later, with the list of supported versions
	}
	if err := mcp.ValidateStandardHeaders(h.Get, version, mcp.MCPMethod(ex.method), ex.params); err != nil {
		return mismatch(asSentence(err))
	}
	if ex.method != methodCallTool {
		return nil
	}
	tool := ex.findTool()
	if tool == nil || !bytes.Contains(tool.RawInputSchema, []byte("x-mcp-header")) {
		return nil
	}
	if err := mcp.ValidateParamHeadersLookup(lookupIn(h), tool, ex.params); err != nil {
		return mismatch(asSentence(err))
	}
	return nil
}

// findTool returns the called tool, or nil if there is none. The call itself then reports the error.
func (ex *exchange) findTool() *mcp.Tool {
	if f := ex.wire.cfg.Foreign; f != nil {
		if item, ok := f.Find(ex.r.Context(), Tool, ex.name); ok {
			return &mcp.Tool{RawInputSchema: document.ReadTrusted(item.JSON).Get("inputSchema").Raw()}
		}
	}
	tools, _ := ex.wire.cfg.Tools.List(ex.r.Context(), ex.who.Principal)
	if i := slices.IndexFunc(tools, func(t mcp.Tool) bool { return t.Name == ex.name }); i >= 0 {
		return &tools[i]
	}
	return nil
}

// lookupIn returns a function that reports a header's first value and whether the header was sent.
func lookupIn(h http.Header) func(string) (string, bool) {
	return func(name string) (string, bool) {
		values := h.Values(name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}
}

func asSentence(err error) string { return strings.TrimSuffix(err.Error(), ".") + "." }

func (e *Endpoint) newSession(write func(line []byte) error) *session {
	s := e.wire.newSession(true, write)
	s.watch.checkLock = e.checkLock
	return s
}

func (ex *exchange) initialize() {
	if ex.ending.Err() != nil {
		ex.refuse(http.StatusServiceUnavailable, errEnding())
		return
	}
	release, ok := ex.sessions.slots.TryAcquire(ex.who.ID)
	if !ok {
		if idle := ex.sessions.idle(ex.who.ID, time.Minute); len(idle) > 0 {
			ex.sessions.remove(idle[0])
		}
		if release, ok = ex.sessions.slots.TryAcquire(ex.who.ID); !ok {
			ex.refuse(http.StatusTooManyRequests, newError(codeNotNow, "too_many_sessions", "Too many sessions are open.", "End those that are not needed, with DELETE."))
			return
		}
	}
	s := &remoteSession{principal: ex.who.ID, release: release}
	s.session = ex.newSession(func(line []byte) error { return ex.sessions.write(s, line) })
	out := ex.wire.answer(&request{session: s.session, ctx: ex.r.Context(), write: func([]byte) error { return errReplyOver }}, ex.message)
	if out.err != nil {
		release()
		ex.refuse(http.StatusOK, out.err)
		return
	}
	ex.sessions.add(s)
	if ex.ending.Err() != nil {
		s.requester.end() // EndStreams has already run
	}
	ex.w.Header().Set(mcp.HeaderSessionID, s.id)
	writeJSON(ex.w, http.StatusOK, out.line(ex.id, false))
}

// answer answers a valid message. If running is not nil, the client can cancel the request.
func (ex *exchange) answer(s *session, running *sync.Map) {
	if ex.id == nil { // the server acts on no notification except cancellation
		ex.accept()
		return
	}
	listens := ex.method == methodListen && ex.modern
	begin := func() (context.Context, context.CancelFunc) { return context.WithCancel(ex.r.Context()) }
	if listens && !ex.acceptsEvents() {
		ex.refuseEvents()
		return
	}
	if listens {
		release, ok := ex.reserveStream()
		if !ok {
			return
		}
		defer release()
		if !listen.CountAsStream(ex.r.Context()) {
			ex.refuse(http.StatusTooManyRequests, errStreams())
			return
		}
		begin = ex.streamContext
	}
	ctx, end := begin()
	defer end()
	if running != nil {
		key := idKey(ex.id)
		running.Store(key, &end)
		defer running.CompareAndDelete(key, &end)
	}
	out := ex.reply(end)
	if s.watch.write == nil {
		s.watch.write = out.send
	}
	done := ex.wire.answer(&request{session: s, ctx: ctx, write: out.send}, ex.message)
	if listens && ctx.Err() != nil {
		out.finish(0, nil)
		return
	}
	status := http.StatusOK
	if ex.modern && done.err != nil {
		status = statusOf(done.err.Code)
	}
	out.finish(status, done.line(ex.id, ex.method == methodCallTool))
}

// statusOf returns the HTTP status for an error in protocol version 2026-07-28. Proxies in front of a server can act on
// it.
func statusOf(code int) int {
	switch code {
	case mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case codeParse, codeInvalidRequest, codeInvalidParams, mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, mcp.UNSUPPORTED_PROTOCOL_VERSION:
		return http.StatusBadRequest
	default:
		return http.StatusOK
	}
}
