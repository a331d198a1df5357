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

// admitTimeout is how long a request waits to be admitted. replyGrace is the time that remains to answer a request that was
// evicted before it began.
const (
	admitTimeout = 10 * time.Second
	replyGrace   = time.Second
)

// maxBodiesInMemory is how many bodies of maximum size fit into the memory for all bodies together.
const maxBodiesInMemory = 32

// principalPrefix is the prefix of the keys of holders that are principals.
const principalPrefix = "principal "

var errEvicted = errors.New("evicted in favour of other connections")

type writerKey struct{}

// Admit limits the requests in flight. It reads the request's body and then waits for a slot; a principal may have
// half of the slots. caller returns the principal of a request; "" means that it counts for its address.
//
// It runs after authentication and before all work. A request has no slot until then. If too many requests are
// waiting, the principal or address with the most loses its oldest one. If no Server handles the request, Admit has
// no effect.
func Admit(caller func(context.Context) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := r.Context().Value(writerKey{}).(*responseWriter)
		if !ok || a.releaseSlot != nil {
			next.ServeHTTP(w, r)
			return
		}
		if principal := caller(r.Context()); principal != "" {
			a.setOwner(principalPrefix + principal)
		} else {
			a.setOwner(addressKey(r.RemoteAddr))
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
	a, ok := ctx.Value(writerKey{}).(*responseWriter)
	return !ok || a.countAsStream()
}

// countArrival counts a request that is not admitted yet. Before authentication, it belongs to the last caller on its
// connection, so that a crowd of strangers at the same address costs a known caller nothing. It is counted separately
// from authenticated requests, because a proxy may send requests of strangers on the same connection.
func (a *responseWriter) countArrival(r *http.Request) {
	a.key = a.conn.member.holder()
	if strings.HasPrefix(a.key, principalPrefix) {
		a.key = "connection of " + a.key
	}
	key := a.key
	if slices.Contains(a.server.cfg.Unlimited, r.URL.Path) {
		key = "health " + addressKey(r.RemoteAddr) // regardless of how many others arrive
	}
	a.arrival, _ = a.server.arriving.join(key, 1, a.refuseEvicted) // its members are never pinned
	a.conn.member.renew()
}

// setOwner sets the owner of the request and its connection.
func (a *responseWriter) setOwner(key string) {
	a.key = key
	a.arrival.setHolder(key)
	a.conn.member.setHolder(key)
}

// admit returns the body of an admitted request, or the reason why it is not admitted.
func (a *responseWriter) admit(ctx context.Context) (io.ReadCloser, *problem) {
	body, refusal := a.readBody()
	if refusal != nil {
		return nil, refusal
	}
	release, err := a.server.requests.Acquire(ctx, a.key)
	if err != nil {
		return nil, &tooMany // no one reads it if the caller is gone
	}
	a.releaseSlot = release
	a.isPinned = a.conn.member.pin()
	if !a.isPinned || !a.arrival.leave() || a.bodyMember != nil && !a.bodyMember.pin() { // evicted just now
		return nil, &tooMany
	}
	return body, nil
}

// readBody reads the whole body into memory.
func (a *responseWriter) readBody() (io.ReadCloser, *problem) {
	if a.body.ended.Load() {
		return http.NoBody, nil
	}
	a.bodyMember, _ = a.server.bodies.join(a.key, 0, a.refuseEvicted) // a weight of 0 always fits
	a.body.held = a.bodyMember
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
func (a *responseWriter) refuseEvicted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hasReturned {
		return
	}
	a.isDropped = true
	a.body.failure.CompareAndSwap(nil, &tooMany)
	a.cancel(errEvicted)
	_ = a.control.SetReadDeadline(time.Unix(1, 0)) // only fails for non-network connections
	_ = a.control.SetWriteDeadline(time.Now().Add(replyGrace))
}

// detectStream detects event streams that answer a GET. They count for MaxStreams instead of MaxRequests, and end
// when the server shuts down. A stream that answers a POST is a request in flight, which is finished.
func (a *responseWriter) detectStream(status int) bool {
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
	a.unwatch = func() {
		stop()
		<-forget
	}
	return true
}

// countAsStream returns false if the caller may not have another stream.
func (a *responseWriter) countAsStream() bool {
	release, ok := a.server.streams.TryAcquire(a.key)
	if !ok {
		return false
	}
	if a.releaseSlot != nil {
		a.releaseSlot()
	}
	a.releaseSlot = release
	return true
}

// end releases everything that the request held, and sets the deadline for the rest of the answer.
func (a *responseWriter) end() {
	a.extendDeadline()
	a.mu.Lock()
	a.hasReturned = true
	a.mu.Unlock()
	if a.unwatch != nil {
		a.unwatch()
	}
	if a.releaseSlot != nil {
		a.releaseSlot()
	}
	a.arrival.leave()
	if a.bodyMember != nil {
		a.bodyMember.leave()
	}
	if a.isPinned {
		a.conn.member.unpin()
	}
}
