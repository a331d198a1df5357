package listen

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// responseWriter is the ResponseWriter of a handler. Every write has its own deadline, so that a client that does not read
// cannot hold memory or a goroutine forever.
type responseWriter struct {
	http.ResponseWriter
	server  *Server
	request *http.Request
	control *http.ResponseController
	body    *body
	conn    *limitedConn
	cancel  context.CancelCauseFunc // of the request
	started bool
	// isRefused reports that a problem was written instead of the handler's answer.
	isRefused bool

	key         string  // the caller, see principalPrefix and addressKey
	arrival     *member // until the request is admitted
	bodyMember  *member // its body in memory; nil if there is none
	releaseSlot func()  // releases the slot of the request; nil if it has none
	isPinned    bool    // its connection cannot be evicted
	unwatch     func()  // stops watching a stream; nil if there is none

	mu          sync.Mutex // guards the fields that refuseEvicted and the handler share
	isDropped   bool
	hasReturned bool // the handler has returned
}

var errRefused = errors.New("the answer was given by the listener")

// Unwrap is used by http.ResponseController.
func (a *responseWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// extendDeadline sets a new deadline for the next write.
func (a *responseWriter) extendDeadline() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isDropped {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.server.cfg.WriteTimeout)) // only fails for non-network connections
	}
}

// clearDeadline removes the deadline. With HTTP/2 it would otherwise expire between writes, and end a stream that is
// merely quiet.
func (a *responseWriter) clearDeadline() {
	if a.request.ProtoMajor > 1 {
		_ = a.control.SetWriteDeadline(time.Time{})
	}
}

// WriteHeader implements http.ResponseWriter. If the body was not read completely, or the answer would be one stream
// too many, the listener's refusal is written instead.
func (a *responseWriter) WriteHeader(status int) {
	if a.started || a.isRefused {
		return
	}
	if status < http.StatusOK { // sent immediately; others are sent with the body
		a.extendDeadline()
		defer a.clearDeadline()
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.started = true
	if p := a.body.failure.Load(); p != nil {
		a.refuse(*p)
		return
	}
	if !a.detectStream(status) {
		a.refuse(tooManyFlows)
		return
	}
	a.skipBody(status)
	a.ResponseWriter.WriteHeader(status)
}

// skipBody closes the connection after an error, instead of waiting for the rest of an unwanted body.
func (a *responseWriter) skipBody(status int) {
	if status >= http.StatusBadRequest && a.request.ProtoMajor == 1 && !a.body.ended.Load() {
		a.Header().Set("Connection", "close")
	}
}

func (a *responseWriter) refuse(p problem) {
	a.started, a.isRefused = true, true
	for _, name := range []string{"Etag", "Location", "Mcp-Session-Id", "Set-Cookie", "Trailer", "Transfer-Encoding"} {
		a.Header().Del(name)
	}
	a.skipBody(p.Status)
	p.write(a.ResponseWriter)
	a.cancel(nil) // further output of the handler is discarded
}

// Write implements http.ResponseWriter.
func (a *responseWriter) Write(p []byte) (int, error) {
	if !a.started {
		a.WriteHeader(http.StatusOK)
	}
	if a.isRefused {
		return 0, errRefused
	}
	a.extendDeadline()
	defer a.clearDeadline()
	return a.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (a *responseWriter) Flush() { _ = a.FlushError() }

// FlushError is used by http.ResponseController.
func (a *responseWriter) FlushError() error {
	if !a.started {
		a.WriteHeader(http.StatusOK)
	}
	if a.isRefused {
		return errRefused
	}
	a.extendDeadline()
	defer a.clearDeadline()
	return a.control.Flush()
}
