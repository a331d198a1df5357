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

// How long a request waits for a place among those in flight, and what is left of the time
// for the answer of one that lost its place before it began.
const (
	slotWait = 10 * time.Second
	lastWord = time.Second
)

// bodiesHeld is how many of the largest bodies fit into what all requests together may
// hold of theirs.
const bodiesHeld = 32

// principalPrefix begins the keys of holders that are principals.
const principalPrefix = "principal "

var errEvicted = errors.New("others had to be let in")

type answerKey struct{}

// Admit counts the requests in flight. It reads a request's body, then waits for a place
// among them, of which no principal has more than half; caller says whose it is, "" for
// nobody's, which is the address's. It runs behind authentication, and
// before everything that works: until then a request holds no place, and when there are too
// many of those, the principal or address with most loses its oldest. Without a Server in
// front of it it does nothing.
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

// CountAsStream exchanges a request's place for that of an event stream; those that answer
// a GET need not ask. It is false when there is none, and true without a Server.
func CountAsStream(ctx context.Context) bool {
	a, ok := ctx.Value(answerKey{}).(*answer)
	return !ok || a.countAsStream()
}

// countArrival counts a request that has no place yet. Until it is known whose it is, it is
// that of who called last on its connection: a crowd of strangers at the same address costs a
// known caller nothing. It is counted apart from what is authenticated: a proxy may send the
// requests of strangers on the same connection.
func (a *answer) countArrival(r *http.Request) {
	a.key = a.conn.place.holder()
	if strings.HasPrefix(a.key, principalPrefix) {
		a.key = "connection of " + a.key
	}
	key := a.key
	if slices.Contains(a.server.cfg.Unlimited, r.URL.Path) {
		key = "health " + addressKey(r.RemoteAddr) // however many others arrive
	}
	a.arrival, _ = a.server.arriving.join(key, 1, a.refuseEvicted) // nothing in it is ever pinned
	a.conn.place.renew()
}

// belongTo says whose the request and its connection are.
func (a *answer) belongTo(key string) {
	a.key = key
	a.arrival.setHolder(key)
	a.conn.place.setHolder(key)
}

// admit returns the body of a request that has a place, or why it has none.
func (a *answer) admit(ctx context.Context) (io.ReadCloser, *problem) {
	body, refusal := a.readBody()
	if refusal != nil {
		return nil, refusal
	}
	release, err := a.server.requests.Acquire(ctx, a.key)
	if err != nil {
		return nil, &tooMany // nobody reads it when the caller is gone
	}
	a.slot = release
	a.pinned = a.conn.place.pin()
	if !a.pinned || !a.arrival.leave() || a.held != nil && !a.held.pin() { // evicted just now
		return nil, &tooMany
	}
	return body, nil
}

// readBody has all of the body in memory.
func (a *answer) readBody() (io.ReadCloser, *problem) {
	if a.body.ended.Load() {
		return http.NoBody, nil
	}
	a.held, _ = a.server.bodies.join(a.key, 0, a.refuseEvicted) // nothing has no weight
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

// refuseEvicted ends a request that lost its place before it began: it is told that there are too
// many.
func (a *answer) refuseEvicted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.dropped = true
	a.body.failure.CompareAndSwap(nil, &tooMany)
	a.cancel(errEvicted)
	_ = a.control.SetReadDeadline(time.Unix(1, 0)) // what cannot have one is no network connection
	_ = a.control.SetWriteDeadline(time.Now().Add(lastWord))
}

// becomeStream notices event streams that answer a GET: they count for MaxStreams instead
// of MaxRequests, and end when the server does. One that answers a POST is a request in
// flight, which is finished.
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

// countAsStream is false when the caller has no place for one more stream.
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

// end gives back what the request held, and the rest of the answer its time.
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
