package listen

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// slotWait is how long a request waits to be admitted. lastWord is the time that remains to answer a request that was
// evicted before it began.
const (
	slotWait = 10 * time.Second
	lastWord = time.Second
)

// bodiesHeld is how many bodies of maximum size fit into the memory for all bodies together.
const bodiesHeld = 32

// principalPrefix is the prefix of the keys of holders that are principals.
const principalPrefix = "principal "

var errEvicted = errors.New("evicted in favour of other connections")

type answerKey struct{}

// Admit limits the requests in flight. It reads the request's body and then waits for a slot; a principal may have
// half of the slots. caller returns the principal of a request; "" means that it counts for its address.
//
// It runs after authentication and before all work. A request has no slot until then. If too many requests are
// waiting, the principal or address with the most loses its oldest one. If no Server handles the request, Admit has
// no effect.
func Admit(caller func(context.Context) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := r.Context().Value(answerKey{}).(*answer)
		if !ok || a.slot != nil {
			next.ServeHTTP(w, r)
			return
		}
		if principal := caller(r.Context()); principal != "" {
			a.belongTo(principalPrefix + principal)
		} else {
			a.belongTo(addressKey(r.RemoteAddr))
		}
		body, refusal := a.admit(r.Context())
		if refusal != nil {
			refusal.write(w)
			return
		}
		r = r.WithContext(r.Context()) // a copy
		r.Body = body
		next.ServeHTTP(w, r)
	})
}

// CountAsStream exchanges a request's slot for that of an event stream. Streams that answer a GET need not call it.
// It returns false if there is no slot, and true without a Server.
func CountAsStream(ctx context.Context) bool {
	a, ok := ctx.Value(answerKey{}).(*answer)
	return !ok || a.countAsStream()
}

// countArrival counts a request that is not admitted yet. Before authentication, it belongs to the last caller on its
// connection, so that a crowd of strangers at the same address costs a known caller nothing. It is counted separately
// from authenticated requests, because a proxy may send requests of strangers on the same connection.
func (a *answer) countArrival(r *http.Request) {
	a.key = a.conn.place.holder()
	if strings.HasPrefix(a.key, principalPrefix) {
		a.key = "connection of " + a.key
	}
	key := a.key
	if slices.Contains(a.server.cfg.Unlimited, r.URL.Path) {
		key = "health " + addressKey(r.RemoteAddr) // regardless of how many others arrive
	}
	a.arrival, _ = a.server.arriving.join(key, 1, a.refuseEvicted) // its members are never pinned
	a.conn.place.renew()
}

// belongTo sets the owner of the request and its connection.
func (a *answer) belongTo(key string) {
	a.key = key
	a.arrival.setHolder(key)
	a.conn.place.setHolder(key)
}

// admit returns the body of an admitted request, or the reason why it is not admitted.
func (a *answer) admit(ctx context.Context) (io.ReadCloser, *problem) {
	body, refusal := a.readBody()
	if refusal != nil {
		return nil, refusal
	}
	release, err := a.server.requests.Acquire(ctx, a.key)
	if err != nil {
		return nil, &tooMany // no one reads it if the caller is gone
	}
	a.slot = release
	a.pinned = a.conn.place.pin()
	if !a.pinned || !a.arrival.leave() || a.held != nil && !a.held.pin() { // evicted just now
		return nil, &tooMany
	}
	return body, nil
}

// readBody reads the whole body into memory.
func (a *answer) readBody() (io.ReadCloser, *problem) {
	if a.body.ended.Load() {
		return http.NoBody, nil
	}
	a.held, _ = a.server.bodies.join(a.key, 0, a.refuseEvicted) // a weight of 0 always fits
	a.body.held = a.held
	all, err := io.ReadAll(a.body)
	if err != nil {
		if p := a.body.failure.Load(); p != nil {
			return nil, p
		}
		return nil, &brokenBody
	}
	return io.NopCloser(bytes.NewReader(all)), nil
}

// refuseEvicted ends a request that was evicted before it began, and refuses it with tooMany.
func (a *answer) refuseEvicted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.dropped = true
	a.body.failure.CompareAndSwap(nil, &tooMany)
	a.cancel(errEvicted)
	_ = a.control.SetReadDeadline(time.Unix(1, 0)) // only fails for non-network connections
	_ = a.control.SetWriteDeadline(time.Now().Add(lastWord))
}

// becomeStream detects event streams that answer a GET. They count for MaxStreams instead of MaxRequests, and end
// when the server shuts down. A stream that answers a POST is a request in flight, which is finished.
func (a *answer) becomeStream(status int) bool {
	if a.request.Method != http.MethodGet || status != http.StatusOK || !strings.HasPrefix(a.Header().Get("Content-Type"), "text/event-stream") {
		return true
	}
	if !a.countAsStream() {
		return false
	}
	forget := make(chan struct{})
	ctx, stop := context.WithCancel(a.request.Context())
	go func() {
		defer close(forget)
		select {
		case <-a.server.draining:
			a.cancel(nil)
		case <-ctx.Done():
		}
	}()
	a.forget = func() {
		stop()
		<-forget
	}
	return true
}

// countAsStream returns false if the caller may not have another stream.
func (a *answer) countAsStream() bool {
	release, ok := a.server.streams.TryAcquire(a.key)
	if !ok {
		return false
	}
	if a.slot != nil {
		a.slot()
	}
	a.slot = release
	return true
}

// end releases everything that the request held, and sets the deadline for the rest of the answer.
func (a *answer) end() {
	a.extendDeadline()
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	if a.forget != nil {
		a.forget()
	}
	if a.slot != nil {
		a.slot()
	}
	a.arrival.leave()
	if a.held != nil {
		a.held.leave()
	}
	if a.pinned {
		a.conn.place.unpin()
	}
}
