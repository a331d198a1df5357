package mcpwire

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// writePatience is how long a client may take to read what is written to it. One that
// reads nothing must not keep a stream's lock, nor its place.
const writePatience = 30 * time.Second

var (
	errReplyOver = errors.New("the response is over")
	errNoEvents  = errors.New("the client accepts no stream of events")
)

// reply is the response to one HTTP request: one message, or, once something else is sent
// first, a stream of events that ends with it.
type reply struct {
	w     http.ResponseWriter
	plain bool // the client takes one message, and no stream
	// end ends the request whose reply cannot be written.
	end context.CancelFunc
	// Every alive, a stream is written to, and ends if valid is false.
	alive time.Duration
	valid func() bool

	background sync.WaitGroup
	stop       chan struct{} // closed at the end

	mu     sync.Mutex
	events bool      // it is a stream of events
	last   time.Time // when the last event was written
	over   bool
	failed error
}

// stream begins a stream; mu is held.
func (r *reply) stream() {
	r.events = true
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // proxies hold events back otherwise
	c := http.NewResponseController(r.w)
	// A stream outlasts the limits of a request. Where they cannot be lifted, it ends
	// with them, and the client opens another.
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Now().Add(writePatience))
	r.w.WriteHeader(http.StatusOK)
	_ = c.Flush()
	r.background.Go(r.keepAlive)
}

// open begins a stream in which there is nothing yet.
func (r *reply) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream()
}

// send sends a message before the last one, whereby the reply becomes a stream.
func (r *reply) send(line []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return errReplyOver
	case r.plain:
		return errNoEvents
	case !r.events:
		r.stream()
	}
	return r.event(line)
}

func (r *reply) event(line []byte) error {
	return r.write([]byte("event: message\ndata: "), bytes.TrimSuffix(line, []byte("\n")), []byte("\n\n"))
}

// write writes one event; mu is held.
func (r *reply) write(parts ...[]byte) error {
	if r.failed != nil {
		return r.failed
	}
	c := http.NewResponseController(r.w)
	_ = c.SetWriteDeadline(time.Now().Add(writePatience)) // without it, the connection's own limit holds
	if _, r.failed = r.w.Write(bytes.Join(parts, nil)); r.failed == nil {
		r.failed = c.Flush()
	}
	_ = c.SetWriteDeadline(time.Time{}) // over HTTP/2 it would end a stream that is merely quiet
	r.last = time.Now()
	return r.failed
}

// keepAlive writes to a stream that is quiet: proxies close those that say nothing, and
// only a write tells that a client is gone. It ends the request of one that is, or whose
// credential is no longer valid.
func (r *reply) keepAlive() {
	t := time.NewTicker(r.alive)
	defer t.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-t.C:
			if r.comment() != nil || !r.valid() {
				r.end()
				return
			}
		}
	}
}

func (r *reply) comment() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return nil
	}
	return r.write([]byte(":\n\n"))
}

// apart is the time between a notification and the answer that follows it: enough for a
// client on a busy machine to have read the former. The TypeScript SDK forgets who waits
// for progress when it reads the answer, before it hands out what stood in front of it in
// the same piece.
const apart = 25 * time.Millisecond

// finish sends the last message, if there is one, and takes nothing more. The status is
// for one that is not part of a stream.
func (r *reply) finish(status int, line []byte) {
	r.mu.Lock()
	r.over = true
	switch {
	case !r.events:
		writeJSON(r.w, status, line)
	case line != nil:
		if d := apart - time.Since(r.last); d > 0 {
			<-time.After(d)
		}
		_ = r.event(line) // a client that is gone needs no answer
	}
	r.mu.Unlock()
	close(r.stop)
	r.background.Wait()
}

// writeJSON answers with one message, or with none.
func writeJSON(w http.ResponseWriter, status int, line []byte) {
	body := bytes.TrimSuffix(line, []byte("\n"))
	h := w.Header()
	if len(body) > 0 {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}
