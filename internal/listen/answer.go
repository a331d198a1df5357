package listen

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// answer is the ResponseWriter of a handler: every write has its own deadline, so that
// a reader who does not read holds neither memory nor a goroutine forever.
type answer struct {
	http.ResponseWriter
	server  *Server
	request *http.Request
	control *http.ResponseController
	body    *body
	conn    *countedConn
	cancel  context.CancelCauseFunc // of the request
	begun   bool
	// refused: a problem was written in the handler's place.
	refused bool

	key     string  // who calls, see principalPrefix and addressKey
	arrival *member // until it has a place
	held    *member // its body in memory; nil for none
	slot    func()  // gives the place back that the request takes; nil when it takes none
	pinned  bool    // its connection cannot be evicted
	forget  func()  // ends what watches over a stream; nil for none

	mu      sync.Mutex // of what drop and the handler share
	dropped bool
	over    bool // the handler has returned
}

var errRefused = errors.New("the answer was given by the listener")

// Unwrap implements what http.ResponseController looks for.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// extendDeadline gives the next write its time.
func (a *answer) extendDeadline() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.dropped {
		_ = a.control.SetWriteDeadline(time.Now().Add(a.server.cfg.WriteTimeout)) // what cannot have one is no network connection
	}
}

// clearDeadline takes the time back. Over HTTP/2 it would go on to run between writes, and end a
// stream that is merely quiet.
func (a *answer) clearDeadline() {
	if a.request.ProtoMajor > 1 {
		_ = a.control.SetWriteDeadline(time.Time{})
	}
}

// WriteHeader implements http.ResponseWriter. An answer to a body that was not all read
// is the listener's, and so is one to a stream too many.
func (a *answer) WriteHeader(status int) {
	if a.begun || a.refused {
		return
	}
	if status < http.StatusOK { // sent at once; any other with what follows
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

// leaveBody keeps an answer from waiting for an unwanted body.
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
	a.cancel(nil) // nobody gets what the handler might still say
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

// FlushError is what http.ResponseController calls.
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
