package listen

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// answer is the ResponseWriter of a handler. Every write has its own deadline, so that a client that does not read
// cannot hold memory or a goroutine forever.
type answer struct {
	http.ResponseWriter
	server  *Server
	request *http.Request
	control *http.ResponseController
	body    *body
	conn    *countedConn
	cancel  context.CancelCauseFunc // of the request
	begun   bool
	// refused reports that a problem was written instead of the handler's answer.
	refused bool

	key     string  // the caller, see principalPrefix and addressKey
	arrival *member // until the request is admitted
	held    *member // its body in memory; nil if there is none
	slot    func()  // releases the slot of the request; nil if it has none
	pinned  bool    // its connection cannot be evicted
	forget  func()  // stops watching a stream; nil if there is none

	mu      sync.Mutex // guards the fields that refuseEvicted and the handler share
	dropped bool
	over    bool // the handler has returned
}

var errRefused = errors.New("the answer was given by the listener")

// Unwrap is used by http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// extendDeadline sets a new deadline for the next write.
func (a *answer) extendDeadline() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.dropped {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.server.cfg.WriteTimeout)) // only fails for non-network connections
	}
}

// clearDeadline removes the deadline. With HTTP/2 it would otherwise expire between writes, and end a stream that is
// merely quiet.
func (a *answer) clearDeadline() {
	if a.request.ProtoMajor > 1 {
		_ = a.control.SetWriteDeadline(time.Time{})
	}
}

// WriteHeader implements http.ResponseWriter. If the body was not read completely, or the answer would be one stream
// too many, the listener's refusal is written instead.
func (a *answer) WriteHeader(status int) {
	if a.begun || a.refused {
		return
	}
	if status < http.StatusOK { // sent immediately; others are sent with the body
		a.extendDeadline()
		defer a.clearDeadline()
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.begun = true
	if p := a.body.failure.Load(); p != nil {
		a.refuse(*p)
		return
	}
	if !a.becomeStream(status) {
		a.refuse(tooManyFlows)
		return
	}
	a.leaveBody(status)
	a.ResponseWriter.WriteHeader(status)
}

// leaveBody closes the connection after an error, instead of waiting for the rest of an unwanted body.
func (a *answer) leaveBody(status int) {
	if status >= http.StatusBadRequest && a.request.ProtoMajor == 1 && !a.body.ended.Load() {
		a.Header().Set("Connection", "close")
	}
}

func (a *answer) refuse(p problem) {
	a.begun, a.refused = true, true
	for _, name := range []string{"Etag", "Location", "Mcp-Session-Id", "Set-Cookie", "Trailer", "Transfer-Encoding"} {
		a.Header().Del(name)
	}
	a.leaveBody(p.Status)
	p.write(a.ResponseWriter)
	a.cancel(nil) // further output of the handler is discarded
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	if a.refused {
		return 0, errRefused
	}
	a.extendDeadline()
	defer a.clearDeadline()
	return a.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is used by http.ResponseController.
func (a *answer) FlushError() error {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	if a.refused {
		return errRefused
	}
	a.extendDeadline()
	defer a.clearDeadline()
	return a.control.Flush()
}
