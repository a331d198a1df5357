package listen_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/internal/listen"
)

// halfSent returns a POST whose body is never sent completely.
func halfSent(caller string, length int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nX-Caller: %s\r\nContent-Length: %d\r\n\r\n{", caller, length)
}

func whole(caller, body string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nX-Caller: %s\r\nContent-Length: %d\r\n\r\n%s", caller, len(body), body)
}

func isServed(t *testing.T, what string, c *caller) {
	t.Helper()
	resp := c.answer()
	if resp == nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %v, want 200", what, resp)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
}

func isOverloaded(t *testing.T, what string, c *caller) {
	t.Helper()
	resp := c.answer()
	if got := code(t, resp); resp.StatusCode != http.StatusServiceUnavailable || got != "overloaded" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%s: %s %s %v", what, resp.Status, got, resp.Header)
	}
}

// TestHalfSentBodiesHoldNothing checks that incomplete bodies use no slots. If there are too many, their sender loses
// the oldest.
func TestHalfSentBodiesHoldNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{MaxRequests: 8, Unlimited: []string{"/healthz"}}, reads, func(b *bench) {
		var sent []*caller
		for i := range 20 {
			sent = append(sent, b.dial().send(halfSent("loud", 100)))
			synctest.Wait()
			if i >= 8 {
				isOverloaded(t, "the oldest", sent[i-8])
			}
		}
		if got := b.server.Stats(); got.Requests.Held != 0 || got.Arriving != 8 || got.EvictedRequests != 12 {
			t.Errorf("%+v", got)
		}
		for range 20 { // one after the other: each is new
			isServed(t, "the operator", b.dial().send(whole("operator", "abc")))
			isServed(t, "another agent", b.dial().send(whole("quiet", "abc")))
			isServed(t, "health", b.dial().send(get("/healthz")))
		}
		if got := b.server.Stats(); got.Requests.Busy != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestBodyMemoryIsLimited checks that the memory for all bodies is limited, and that the largest holder loses first.
func TestBodyMemoryIsLimited(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{MaxBody: 1000}, reads, func(b *bench) {
		for range 60 {
			b.dial().send(halfSent("loud", 1000) + strings.Repeat("x", 900))
			synctest.Wait()
		}
		if got := b.server.Stats(); got.BodyBytes > 32*1000 || got.BodyBytes < 30*900 || got.EvictedRequests == 0 {
			t.Errorf("%+v", got)
		}
		for range 20 {
			isServed(t, "the other", b.dial().send(whole("quiet", strings.Repeat("x", 1000))))
		}
	})
}

// TestSilentConnections checks that silent connections give way to new ones, even from the same address. A known
// caller keeps its connections.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{MaxConns: 8, Unlimited: []string{"/healthz"}}, reads, func(b *bench) {
		known := b.dial()
		isServed(t, "the first", known.send(whole("quiet", "abc")))
		synctest.Wait()
		silent := b.dial()
		half := b.dial().send("GET / HTTP/1.1\r\nHost: loc")
		for range 30 {
			b.dial()
		}
		synctest.Wait()
		if got := b.server.Stats(); got.Connections != 8 || got.EvictedConnections != 25 {
			t.Errorf("%+v", got)
		}
		for _, from := range []string{"127.0.0.1", "192.0.2.7"} {
			isServed(t, "from "+from, b.dialFrom(from).send(whole("other", "abc")))
			isServed(t, "health from "+from, b.dialFrom(from).send(get("/healthz")))
		}
		isServed(t, "a connection that was there before", known.send(whole("quiet", "abc")))
		for name, c := range map[string]*caller{"silent": silent, "half": half} {
			if resp := c.answer(); resp != nil {
				t.Errorf("the oldest %s connection is open: %v", name, resp)
			}
		}
	})
}

// TestConnectionsByAddress checks that an address with few connections loses none because of one with many, however
// long its own have been quiet.
func TestConnectionsByAddress(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{MaxConns: 8}, reads, func(b *bench) {
		var few []*caller
		for range 4 {
			few = append(few, b.dialFrom("192.0.2.7"))
		}
		for range 30 {
			b.dialFrom("198.51.100.9")
		}
		for _, c := range few {
			isServed(t, "half of all", c.send(whole("quiet", "abc")))
		}
	})
}

// TestEveryConnectionInUse checks that health checks are answered even if no connection can be closed.
func TestEveryConnectionInUse(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{MaxConns: 4, MaxRequests: 4, Unlimited: []string{"/healthz"}}, nil, func(b *bench) {
		goOn := make(chan struct{})
		b.handle = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-goOn
			}
			fine(w, r)
		}
		var working []*caller
		for i := range 4 {
			working = append(working, b.dial().send(get("/wait", "X-Caller: "+strconv.Itoa(i%2))))
		}
		synctest.Wait()
		if got := b.server.Stats(); got.Requests.Held != 4 {
			t.Fatalf("%+v", got)
		}
		for range 20 {
			isServed(t, "health", b.dial().send(get("/healthz")))
			over := b.dial().send(get("/"))
			isOverloaded(t, "one connection too many", over)
		}
		close(goOn)
		for _, c := range working {
			isServed(t, "work", c)
		}
	})
}

// TestStrangersByAddress checks that requests are limited by address during authentication. An address that sends
// more loses its oldest request.
func TestStrangersByAddress(t *testing.T) {
	t.Parallel()
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done() // an issuer that does not answer
			http.Error(w, "cannot be checked", http.StatusServiceUnavailable)
			return
		}
		fine(w, r)
	})
	inBubble(t, listen.Config{MaxRequests: 8, Handler: slow}, nil, func(b *bench) {
		var all []*caller
		for range 4 {
			all = append(all, b.dialFrom("192.0.2.7").send(get("/slow")))
			synctest.Wait()
		}
		for i := range 10 {
			all = append(all, b.dialFrom("198.51.100.9").send(get("/slow")))
			synctest.Wait()
			if i >= 4 {
				isOverloaded(t, "the oldest", all[i])
			}
		}
		if got := b.server.Stats(); got.Arriving != 8 || got.EvictedRequests != 6 {
			t.Errorf("%+v", got)
		}
		next := b.dialFrom("198.51.100.9").send(get("/"))
		isOverloaded(t, "the oldest", all[10])
		isServed(t, "another one", next)
		synctest.Wait()
		if got := b.server.Stats(); got.Arriving != 7 {
			t.Errorf("%+v", got)
		}
		b.hangUp()
	})
}

// TestKnownCallerAmongStrangers checks that the next request on a known caller's connection counts for that caller
// even before it is authenticated, whatever arrives from the same address. After a request without a name, the
// connection counts for the address again.
func TestKnownCallerAmongStrangers(t *testing.T) {
	t.Parallel()
	var goOn chan struct{}
	authenticate := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		}
		admitting(nil, http.HandlerFunc(fine)).ServeHTTP(w, r)
	}
	inBubble(t, listen.Config{MaxRequests: 8, Handler: http.HandlerFunc(authenticate)}, nil, func(b *bench) {
		goOn = make(chan struct{}) // of the bubble
		known, nobody := b.dial(), b.dial()
		for _, c := range []*caller{known, nobody} {
			isServed(t, "while nobody else calls", c.send(get("/", "X-Caller: quiet")))
		}
		isServed(t, "without a name", nobody.send(get("/")))
		known.send(get("/slow", "X-Caller: quiet"))
		synctest.Wait()
		nobody.send(get("/slow"))
		synctest.Wait()
		for range 20 {
			b.dial().send(get("/slow"))
			synctest.Wait()
		}
		isOverloaded(t, "the oldest of the address", nobody)
		close(goOn)
		isServed(t, "the known caller", known)
		b.hangUp()
	})
}

// TestStrangersOnConnectionsOfAKnownCaller checks that strangers on a known caller's connections, as through a proxy,
// do not cost the caller's authenticated requests anything.
func TestStrangersOnConnectionsOfAKnownCaller(t *testing.T) {
	t.Parallel()
	authenticate := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		admitting(nil, http.HandlerFunc(reads)).ServeHTTP(w, r)
	}
	inBubble(t, listen.Config{MaxRequests: 8, Handler: http.HandlerFunc(authenticate)}, nil, func(b *bench) {
		shared := make([]*caller, 20)
		for i := range shared {
			shared[i] = b.dial()
			isServed(t, "while nobody else calls", shared[i].send(get("/", "X-Caller: quiet")))
		}
		known := b.dial().send(halfSent("quiet", 3))
		synctest.Wait()
		for _, c := range shared {
			c.send(get("/slow"))
			synctest.Wait()
		}
		isOverloaded(t, "the oldest of the strangers", shared[0])
		isServed(t, "the known caller", known.send("ab"))
		b.hangUp()
	})
}

// TestNoisyNeighbours checks that a caller with one request at a time is never refused, however many requests others
// send. It waits for at most one round of the slots (and another one may be granted while its request is read), and
// for one grant of each of the others.
func TestNoisyNeighbours(t *testing.T) {
	t.Parallel()
	const places, loud = 16, 3
	inBubble(t, listen.Config{MaxRequests: places}, nil, func(b *bench) {
		var grants atomic.Int64
		b.handle = func(w http.ResponseWriter, r *http.Request) {
			grants.Add(1)
			w.Header().Set("X-Grants", strconv.FormatInt(grants.Load(), 10))
			if r.Header.Get("X-Caller") != "quiet" {
				<-time.After(time.Second)
			}
			fine(w, r)
		}
		var asking sync.WaitGroup
		for i := range 10 * places {
			c := b.dial()
			asking.Go(func() {
				for {
					resp := c.send(get("/", "X-Caller: loud"+strconv.Itoa(i%loud))).answer()
					if resp == nil {
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					<-time.After(300 * time.Millisecond) // otherwise time would not advance
				}
			})
		}
		synctest.Wait()
		if got := b.server.Stats().Requests; got.Held != places || got.Waiting == 0 || got.Busy == 0 {
			t.Fatalf("not busy: %+v", got)
		}
		for i := range 30 {
			before := grants.Load()
			resp := b.dial().send(get("/", "X-Caller: quiet")).answer()
			if resp == nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("request %d: %v", i, resp)
			}
			at, err := strconv.ParseInt(resp.Header.Get("X-Grants"), 10, 64)
			if err != nil || at-before > 2*places+loud {
				t.Errorf("request %d was grant %d from when it came, want at most %d (%v)", i, at-before, 2*places+loud, err)
			}
		}
		b.hangUp()
		asking.Wait()
	})
}

// TestOneCallerWaits checks that a caller at its limit of requests in flight waits in line for a while.
func TestOneCallerWaits(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{MaxRequests: 4}, nil, func(b *bench) {
		goOn := make(chan struct{})
		b.handle = func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-goOn
			}
			fine(w, r)
		}
		first, second := b.dial().send(get("/wait")), b.dial().send(get("/wait"))
		synctest.Wait()
		third := b.dial().send(get("/"))
		synctest.Wait()
		if got := b.server.Stats().Requests; got.Held != 2 || got.Waiting != 1 {
			t.Errorf("%+v", got)
		}
		began := time.Now()
		isOverloaded(t, "the third", third)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("waited %s", took)
		}
		fourth := b.dial().send(get("/"))
		synctest.Wait()
		close(goOn)
		for _, c := range []*caller{first, second, fourth} {
			isServed(t, "in the end", c)
		}
	})
}

// TestOutOfFiles checks that a connection without a request is closed if the process runs out of descriptors.
func TestOutOfFiles(t *testing.T) {
	t.Parallel()
	inBubble(t, listen.Config{}, reads, func(b *bench) {
		silent := b.dial()
		b.pipes.fail <- syscall.EMFILE
		if resp := silent.answer(); resp != nil {
			t.Errorf("%v", resp)
		}
		isServed(t, "afterwards", b.dial().send(whole("quiet", "abc")))
	})
}
