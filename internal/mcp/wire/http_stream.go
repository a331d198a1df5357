package wire

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// writePatience is the deadline for one write. A client that does not read must not hold a stream's lock or count
// against the stream limit.
const writePatience = 30 * time.Second

var (
	errReplyOver = errors.New("the response is over")
	errNoEvents  = errors.New("the client accepts no stream of events")
)

// reply is the response to one HTTP request: a single message, or an event stream that ends with that message. It
// becomes a stream when another message is sent first.
type reply struct {
	w     http.ResponseWriter
	plain bool // the client accepts one message, not a stream
	// end cancels the request when its reply cannot be written.
	end context.CancelFunc
	// At this interval, keepAlive writes to the stream and ends it if valid returns false.
	alive time.Duration
	valid func() bool

	background sync.WaitGroup
	stop       chan struct{} // closed by finish

	mu     sync.Mutex
	events bool      // the reply is an event stream
	last   time.Time // when the last event was written
	over   bool
	failed error
}

// stream starts the event stream. r.mu must be held.
func (r *reply) stream() {
	r.events = true
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // otherwise proxies buffer events
	c := http.NewResponseController(r.w)
	// A stream outlasts the request's deadlines. If they cannot be lifted, the stream ends with them and the client
	// opens another.
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Now().Add(writePatience))
	r.w.WriteHeader(http.StatusOK)
	_ = c.Flush()
	r.background.Go(r.keepAlive)
}

// open starts an event stream without an event.
func (r *reply) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream()
}

// send writes a message before the final one, which turns the reply into a stream.
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

// write writes one event. r.mu must be held.
func (r *reply) write(parts ...[]byte) error {
	if r.failed != nil {
		return r.failed
	}
	c := http.NewResponseController(r.w)
	_ = c.SetWriteDeadline(time.Now().Add(writePatience)) // if unsupported, the connection's own deadline applies
	if _, r.failed = r.w.Write(bytes.Join(parts, nil)); r.failed == nil {
		r.failed = c.Flush()
	}
	_ = c.SetWriteDeadline(time.Time{}) // over HTTP/2 it would end a stream that is only idle
	r.last = time.Now()
	return r.failed
}

// keepAlive writes to a stream at intervals: proxies close idle streams, and only a write reveals that a client has
// disconnected. It cancels the request if the client is gone or its credential is no longer valid.
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

// minGap is the minimum time between a notification and the final message, so that a client on a busy machine reads
// the notification first. When the TypeScript SDK reads the answer, it drops the progress handler before it delivers
// notifications from the same chunk.
const minGap = 25 * time.Millisecond

// finish sends the final message, if any, and closes the reply. status applies only if the reply is not a stream.
func (r *reply) finish(status int, line []byte) {
	r.mu.Lock()
	r.over = true
	switch {
	case !r.events:
		writeJSON(r.w, status, line)
	case line != nil:
		if d := minGap - time.Since(r.last); d > 0 {
			<-time.After(d)
		}
		_ = r.event(line) // a client that is gone needs no answer
	}
	r.mu.Unlock()
	close(r.stop)
	r.background.Wait()
}

// writeJSON responds with one message, or with an empty body.
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
