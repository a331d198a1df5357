package auth

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/listen"
)

// RateLimit lets each principal make so many requests a second, and burst at once.
// Operators are not limited: they fix things. Others get 429 with the time
// after which the next request is taken. It runs behind Middleware; a request without an
// identity is refused.
func RateLimit(perSecond float64, burst int) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return &limiter{limit: rate.Limit(perSecond), burst: burst, next: next, buckets: newLRU[string, *rate.Limiter]()}
	}
}

// mostRemembered bounds how many principals, and how many addresses with bad credentials,
// are remembered: those seen last.
const mostRemembered = 10_000

type limiter struct {
	limit rate.Limit
	burst int
	next  http.Handler

	mu      sync.Mutex
	buckets *simplelru.LRU[string, *rate.Limiter]
}

// ServeHTTP implements http.Handler.
func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ok := FromContext(r.Context())
	if !ok {
		listen.WriteProblem(w, http.StatusUnauthorized, "unauthenticated", "Send a token: Authorization: Bearer TOKEN.")
		return
	}
	if wait := l.take(id, time.Now()); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		listen.WriteProblem(w, http.StatusTooManyRequests, string(engine.CodeRateLimited), fmt.Sprintf("More than %v requests a second, and %d at once, from one principal (--rate, --rate-burst; serve.rate, serve.rateBurst). Wait as long as Retry-After says, and send fewer.", float64(l.limit), l.burst))
		return
	}
	l.next.ServeHTTP(w, r)
}

// take takes a place for one request, or says how long to wait for one.
func (l *limiter) take(id Identity, now time.Time) time.Duration {
	if id.Role == engine.RoleOperator {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.buckets.Get(id.ID)
	if !ok {
		b = rate.NewLimiter(l.limit, l.burst)
		l.buckets.Add(id.ID, b)
	}
	place := b.ReserveN(now, 1)
	if wait := place.DelayFrom(now); wait > 0 {
		place.CancelAt(now)
		return wait
	}
	return 0
}

// failures counts bad credentials by address, each in a span that begins with its first.
type failures struct {
	limit int
	span  time.Duration

	mu   sync.Mutex
	seen *simplelru.LRU[netip.Prefix, failing]
}

type failing struct {
	since time.Time
	n     int
}

func newFailures(limit int, span time.Duration) *failures {
	return &failures{limit: limit, span: span, seen: newLRU[netip.Prefix, failing]()}
}

func newLRU[K comparable, V any]() *simplelru.LRU[K, V] {
	kept, _ := simplelru.NewLRU[K, V](mostRemembered, nil) // the error is for a size below 1
	return kept
}

// recordFailure counts one more and returns how long the address has to wait: 0 for not at all.
func (f *failures) recordFailure(from netip.Prefix, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, _ := f.seen.Get(from)
	if now.Sub(was.since) >= f.span {
		was = failing{since: now}
	}
	was.n++
	f.seen.Add(from, was)
	if was.n <= f.limit {
		return 0
	}
	return f.span - now.Sub(was.since)
}
