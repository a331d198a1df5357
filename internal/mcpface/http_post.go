package mcpface

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
)

// posted is one message over HTTP.
type posted struct {
	message
	body   []byte
	modern bool
	call   *call // nil for what nobody answers
}

// post takes one message.
func (e *Endpoint) post(w http.ResponseWriter, r *http.Request, who auth.Identity) {
	if f, status := unfit(r); f != nil {
		e.answer(w, status, nil, f)
		return
	}
	body, f, status := e.read(w, r)
	if f != nil {
		e.answer(w, status, nil, f)
		return
	}
	m, f := examine(body)
	if f != nil {
		e.answer(w, http.StatusBadRequest, m.id, f)
		return
	}
	p := &posted{message: m, body: body, modern: isModern(r, body)}
	switch {
	case m.method == methodCancelled && p.modern:
		// The end of the connection cancels in this era. The library would look for the
		// id among the requests of everybody.
		w.WriteHeader(http.StatusAccepted)
		return
	case m.method == methodInitialize && m.id == nil:
		e.answer(w, http.StatusBadRequest, nil, invalid("initialize has no id.", "It is a request: send one."))
		return
	case m.response && p.modern:
		e.noQuestion(w, m) // nothing is asked of the client in this era
		return
	case p.modern:
		e.request(w, r, who, p, &remoteSession{session: e.session(nil), principal: who.ID})
	case m.method == methodInitialize:
		e.initialize(w, r, who, p)
	default:
		s := e.named(w, r, who, m.id)
		if s == nil {
			return
		}
		defer e.sessions.done(s)
		switch {
		case m.response && s.asks.answered(m):
			w.WriteHeader(http.StatusAccepted)
			return
		case m.response && e.asksAlone:
			e.noQuestion(w, m)
			return
		}
		e.request(w, r, who, p, s)
	}
}

// noQuestion refuses an answer that nothing waits for. An empty one, as clients answer a
// ping, is accepted.
func (e *Endpoint) noQuestion(w http.ResponseWriter, m message) {
	switch string(m.result) {
	case "{}", "null":
		w.WriteHeader(http.StatusAccepted)
		return
	}
	e.answer(w, http.StatusBadRequest, m.id, invalid("No question with this id waits for an answer.", "It came too late, or belongs to another session."))
}

// unfit refuses requests by their headers.
func unfit(r *http.Request) (f *fault, status int) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	switch {
	case err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8"):
		return invalid("The content is not said to be JSON.", "Send Content-Type: application/json.").named("unsupported_media_type"), http.StatusUnsupportedMediaType
	case r.Header.Get("Content-Encoding") != "" && r.Header.Get("Content-Encoding") != "identity":
		return invalid("The content is encoded.", "Send it without Content-Encoding.").named("unsupported_media_type"), http.StatusUnsupportedMediaType
	case !accepts(r, "application/json") || !accepts(r, "text/event-stream"):
		return invalid("The client does not accept the answers of MCP.", "Send Accept: application/json, text/event-stream.").named("not_acceptable"), http.StatusNotAcceptable
	case len(r.Header.Values(mcp.HeaderProtocolVersion)) > 1:
		return invalid("The protocol version stands twice in the header.", "Send "+mcp.HeaderProtocolVersion+" once."), http.StatusBadRequest
	}
	return nil, 0
}

// read takes the body, as far as it may be.
func (e *Endpoint) read(w http.ResponseWriter, r *http.Request) (body []byte, f *fault, status int) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(e.max)))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &fault{codeInvalidRequest, "too_large", "The message is too large.", "Send less; keep large content elsewhere and refer to it."}, http.StatusRequestEntityTooLarge
	case err != nil:
		return nil, invalid("The message did not arrive whole.", "Send it again."), http.StatusBadRequest
	}
	if body = bytes.Trim(body, " \t\r\n"); len(body) == 0 {
		return nil, &fault{codeParse, "parse_error", "The message is empty.", "Send one JSON-RPC message."}, http.StatusBadRequest
	}
	return body, nil, 0
}

// initialize begins a session.
func (e *Endpoint) initialize(w http.ResponseWriter, r *http.Request, who auth.Identity, p *posted) {
	if e.ending.Err() != nil {
		e.answer(w, http.StatusServiceUnavailable, p.id, endingFault())
		return
	}
	if !e.sessions.quota.take(who.ID) {
		id := e.sessions.oldest(who.ID)
		if id != "" {
			e.end(id)
		}
		if id == "" || !e.sessions.quota.take(who.ID) {
			e.answer(w, http.StatusTooManyRequests, p.id, &fault{codeNotNow, "too_many_sessions", "Too many sessions are open.", "End those that are not needed, with DELETE."})
			return
		}
	}
	s := &remoteSession{principal: who.ID}
	s.session = e.session(func(line []byte) error {
		if out := e.sessions.heard(s); out != nil {
			return out.inject(line)
		}
		return errReplyOver
	})
	e.request(w, r.WithContext(context.WithValue(r.Context(), newSessionKey{}, s)), who, p, s)
	if s.id == "" { // the library did not come as far as asking for an id
		e.sessions.quota.give(who.ID)
		return
	}
	e.sessions.done(s)
	if e.ending.Err() != nil {
		s.asks.end() // it came too late for EndStreams
	}
	if w.Header().Get(server.HeaderKeySessionID) == "" {
		e.end(s.id)
	}
}

// request passes a message on that is in order, and its answer back.
func (e *Endpoint) request(w http.ResponseWriter, r *http.Request, who auth.Identity, p *posted, s *remoteSession) {
	if f := e.refuse(p.message, who.Principal); f != nil {
		status := http.StatusOK // it is the answer to a request in order
		if p.modern {
			status = http.StatusBadRequest
		}
		e.answer(w, status, p.id, f)
		return
	}
	body := e.substitute(p)
	if body == nil {
		e.answer(w, http.StatusBadRequest, p.id, badStreamID())
		return
	}
	ctx := context.WithValue(r.Context(), sessionKey{}, s.session)
	out := newReply(w, p.id, edited(p.call))
	out.modern = p.modern
	if p.method == methodListen && p.modern && p.call != nil {
		e.listen(out, r.WithContext(ctx), who, p, s, body)
		return
	}
	ctx, sent := withOutlet(ctx, p.modern, out)
	if e.elicits && p.method == methodCallTool && !p.modern {
		var end context.CancelFunc
		ctx, end = context.WithCancel(context.WithValue(ctx, replyKey{}, out))
		defer e.background(ctx, end, func(ctx context.Context) { e.keepAlive(ctx, end, out, who) })()
	}
	e.http.ServeHTTP(out, e.clean(r.WithContext(ctx), body))
	sent()
	e.checkBegun(out, p)
	out.finish()
}

// checkBegun takes the session's id out of the answer to an initialize that failed.
func (e *Endpoint) checkBegun(out *reply, p *posted) {
	if p.method != methodInitialize || p.modern {
		return
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	body := bytes.TrimSpace(out.held)
	if at := responseID(body); at.empty() || !bytes.HasPrefix(body[at.end:], []byte(`,"result":`)) {
		out.header.Del(server.HeaderKeySessionID)
	}
}

// listen serves the stream of a client that has no session.
func (e *Endpoint) listen(out *reply, r *http.Request, who auth.Identity, p *posted, s *remoteSession, body []byte) {
	if f, status := e.mayStream(who); f != nil {
		e.answer(out.w, status, p.id, f)
		return
	}
	defer e.streams.give(who.ID)
	if !listen.CountAsStream(r.Context()) {
		e.answer(out.w, http.StatusTooManyRequests, p.id, tooManyStreams())
		return
	}
	ctx, end := e.streamContext(r.Context(), who)
	defer end()
	s.watch.write = out.inject
	wait := e.background(ctx, end, s.watch.run)
	waitAlive := e.background(ctx, end, func(ctx context.Context) { e.keepAlive(ctx, end, out, who) })
	ctx, sent := withOutlet(ctx, true, out)
	e.http.ServeHTTP(out, e.clean(r.WithContext(ctx), body))
	sent()
	wait()
	waitAlive()
	out.finish()
}

// substitute is the body with an id that survives the library; nil when there cannot be
// one. It notes what the answer is to be given back as.
func (e *Endpoint) substitute(p *posted) []byte {
	switch {
	case p.response:
		return p.body
	case p.method == methodCancelled:
		if p.cancels == nil || checkID(p.cancels) != nil {
			return p.body // no request has such an id
		}
		return cancelLine(standIn(p.cancels))
	case p.id == nil:
		return p.body
	}
	passed := standIn(p.id)
	p.call = &call{id: p.id, tool: p.method == methodCallTool}
	if bytes.Equal(passed, p.id) {
		return p.body
	}
	if p.method == methodListen {
		return nil
	}
	return slices.Concat(p.body[:p.idAt.start], passed, p.body[p.idAt.end:])
}

// edited puts the messages of a response into the form in which the client gets them. Of
// a stream that is asked for again the calls are not known any more.
func edited(c *call) func([]byte) []byte {
	return func(line []byte) []byte {
		at := responseID(line)
		if at.empty() {
			return line
		}
		answers := c
		if passed := at.of(line); c == nil || idKey(passed) != idKey(standIn(c.id)) {
			answers = &call{id: original(passed)}
		}
		return finished(line, at, answers)
	}
}

// metaVersion is the protocol version that a message names.
func metaVersion(body []byte) string {
	if !bytes.Contains(body, []byte(mcp.MetaKeyProtocolVersion)) {
		return ""
	}
	var m struct {
		Params struct {
			Meta *mcp.Meta `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal(body, &m) != nil {
		return ""
	}
	return m.Params.Meta.ProtocolVersion()
}
