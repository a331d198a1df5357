package mcpface

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// writePatience is how long a client may take to read what is written to it. One that
// reads nothing must not keep a stream's lock, nor its place.
const writePatience = 30 * time.Second

var (
	errReplyOver = errors.New("the response is over")
	eventEnd     = []byte("\n\n")
	dataStart    = []byte("data: ")
)

// reply is the response to one HTTP request on its way out of the library: every message
// in it passes edit, an error that the library words as text becomes JSON-RPC, and a
// stream takes messages of this package between those of the library.
type reply struct {
	w http.ResponseWriter
	// header is the library's: another goroutine may begin a stream meanwhile.
	header http.Header
	edit   func(message []byte) []byte
	id     []byte // of the request, for errors; nil when it has none
	// modern has the status tell what kind of error an answer is, as the era without
	// sessions demands.
	modern bool
	// before waits until all that belongs before the answer is written.
	before func()

	mu      sync.Mutex
	status  int
	events  bool      // it is a stream of events
	held    []byte    // the body so far, or the event so far
	waiting [][]byte  // messages that came before the stream's first
	begun   bool      // an event was written
	last    time.Time // when the last event was written
	over    bool
	failed  error
}

type replyKey struct{}

// replyOf is the response to the request of ctx, for those that may become a stream.
func replyOf(ctx context.Context) *reply {
	r, _ := ctx.Value(replyKey{}).(*reply)
	return r
}

func newReply(w http.ResponseWriter, id []byte, edit func([]byte) []byte) *reply {
	return &reply{w: w, header: http.Header{}, id: id, edit: edit, before: func() {}}
}

// Header is the response's.
func (r *reply) Header() http.Header { return r.header }

// Unwrap is for http.ResponseController.
func (r *reply) Unwrap() http.ResponseWriter { return r.w }

// WriteHeader passes on the header of a stream; any other waits for its body.
func (r *reply) WriteHeader(status int) {
	events := r.header.Get("Content-Type") == "text/event-stream"
	if !events {
		r.before()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status != 0 || r.over {
		return
	}
	r.status = status
	if events {
		maps.Copy(r.w.Header(), r.header)
		r.stream()
	}
}

// stream begins a stream; mu is held.
func (r *reply) stream() {
	r.events = true
	r.w.Header().Set("X-Accel-Buffering", "no") // proxies hold events back otherwise
	c := http.NewResponseController(r.w)
	// A stream outlasts the limits of a request. Where they cannot be lifted, it ends
	// with them, and the client opens another.
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Now().Add(writePatience))
	r.w.WriteHeader(r.status)
	_ = c.Flush()
	if r.id == nil {
		r.sendWaiting()
	}
}

// sendWaiting sends what came too early; mu is held.
func (r *reply) sendWaiting() {
	for _, message := range r.waiting {
		_ = r.send(eventOf(message)) // kept as r.failed
	}
	r.waiting = nil
}

// Write takes a part of the body, or of an event.
func (r *reply) Write(p []byte) (int, error) {
	if bytes.Contains(p, responseStart) {
		r.before()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return 0, errReplyOver
	case r.failed != nil:
		return 0, r.failed
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	r.held = append(r.held, p...)
	if !r.events {
		return len(p), nil
	}
	for {
		event, rest, ok := bytes.Cut(r.held, eventEnd)
		if !ok {
			return len(p), nil
		}
		r.breathe(event)
		err := r.send(r.edited(event))
		r.held = append([]byte(nil), rest...)
		if err != nil {
			return 0, err
		}
		r.begun = true
		r.sendWaiting()
	}
}

// apart is the time between a notification and the answer that follows it: enough for a
// client on a busy machine to have read the former.
const apart = 25 * time.Millisecond

// breathe keeps an answer from reaching the client in one piece with the notification
// before it: the TypeScript SDK forgets who waits for progress when it reads the answer,
// before it hands out what stood in front of it in the same piece.
func (r *reply) breathe(event []byte) {
	at := bytes.Index(event, dataStart)
	if at < 0 || responseID(event[at+len(dataStart):]).empty() {
		return
	}
	r.pause()
}

// pause waits until the last event is a while ago; mu is held.
func (r *reply) pause() {
	if d := apart - time.Since(r.last); d > 0 {
		<-time.After(d)
	}
}

// Flush does nothing: events are sent when they are whole, and bodies at the end.
func (r *reply) Flush() {}

// edited is an event with its message as the client gets it.
func (r *reply) edited(event []byte) []byte {
	at := bytes.Index(event, dataStart)
	if at < 0 {
		return event
	}
	at += len(dataStart)
	return append(bytes.Clone(event[:at]), bytes.TrimSpace(r.edit(event[at:]))...)
}

func eventOf(message []byte) []byte {
	return append([]byte("event: message\ndata: "), bytes.TrimSpace(message)...)
}

// send writes one event; mu is held.
func (r *reply) send(event []byte) error {
	if r.failed != nil {
		return r.failed
	}
	c := http.NewResponseController(r.w)
	_ = c.SetWriteDeadline(time.Now().Add(writePatience)) // without it, the connection's own limit holds
	if _, err := r.w.Write(append(event, eventEnd...)); err != nil {
		r.failed = err
		return err //nolint:wrapcheck // whoever serves the request knows what it was
	}
	if err := c.Flush(); err != nil {
		r.failed = err
	}
	_ = c.SetWriteDeadline(time.Time{}) // over HTTP/2 it would end a stream that is merely quiet
	r.last = time.Now()
	return r.failed
}

// inject sends a message of this package over a stream. What comes before the stream's
// own first message waits for it.
func (r *reply) inject(message []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return errReplyOver
	case !r.events, r.id != nil && !r.begun: // what answers a request begins with the library's word
		r.waiting = append(r.waiting, bytes.Clone(message))
		return nil
	}
	return r.send(eventOf(message))
}

// push sends a notification that belongs to the request, whose answer becomes a stream
// by it.
func (r *reply) push(message []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.status != 0 && !r.events {
		return errReplyOver
	}
	if r.status == 0 {
		r.status = http.StatusOK
		r.w.Header().Set("Content-Type", "text/event-stream")
		r.w.Header().Set("Cache-Control", "no-cache")
		r.stream()
	}
	err := r.send(eventOf(message))
	r.begun = true
	r.sendWaiting()
	return err
}

// comment keeps a quiet stream alive: proxies close those that say nothing, and only a
// write tells that a client is gone.
func (r *reply) comment() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || !r.events {
		return nil
	}
	return r.send([]byte(":"))
}

// finish sends what was held back, and takes nothing more.
func (r *reply) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.over = true
	if r.events {
		if len(bytes.TrimSpace(r.held)) > 0 { // an answer of which the library did not know that a stream had begun
			r.pause()
			_ = r.send(eventOf(r.edit(r.held))) // a client that is gone needs no answer
		}
		return
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	h := r.w.Header()
	maps.Copy(h, r.header)
	body := bytes.TrimSpace(r.held)
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case len(body) == 0:
	case kind == "application/json":
		body = bytes.TrimSpace(r.edit(body))
		if r.modern {
			r.status = statusOf(body, r.status)
		}
	case r.status >= http.StatusBadRequest:
		body = plainFault(r.status, string(body)).line(r.id)
		h.Set("Content-Type", "application/json")
	}
	seal(h, len(body))
	if r.status == http.StatusAccepted || r.status == http.StatusNoContent {
		h.Del("Content-Type")
	}
	r.w.WriteHeader(r.status)
	_, _ = r.w.Write(body) // a client that is gone needs no answer
}

// statusOf is the status for an answer that may be an error: the library has set it
// before the error was restored.
func statusOf(body []byte, status int) int {
	at := responseID(body)
	if at.empty() || !bytes.HasPrefix(body[at.end:], errorStart) {
		return status
	}
	start := at.end + len(errorStart)
	code, err := strconv.Atoi(string(body[start:skipValue(body, start)]))
	if err != nil {
		return status
	}
	switch code {
	case codeMethodNotFound:
		return http.StatusNotFound
	case codeParse, codeInvalidRequest, codeInvalidParams, mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, mcp.UNSUPPORTED_PROTOCOL_VERSION:
		return http.StatusBadRequest
	default:
		return status
	}
}

// seal sets what every answer with a body says of it.
func seal(h http.Header, length int) {
	h.Set("Content-Length", strconv.Itoa(length))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// plainFault is the library's refusal of a request, which it words as text.
func plainFault(status int, text string) *fault {
	name := "invalid_request"
	switch status {
	case http.StatusNotFound:
		name = "unknown_session"
	case http.StatusMethodNotAllowed:
		name = "method_not_allowed"
	case http.StatusInternalServerError:
		return &fault{codeInternal, "internal", "An internal error kept gavel from answering.", "The log has the details."}
	}
	return invalid(strings.TrimSuffix(clippedText(text), ".")+".", "See the transport of the Model Context Protocol.").named(name)
}

func clippedText(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// named is the fault under another stable name.
func (f *fault) named(name string) *fault {
	f.name = name
	return f
}

// nowhere takes what nobody is to see.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header         { return n.header }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}
func (n nowhere) Flush()                      {}
