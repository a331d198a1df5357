package auth

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gavel-mcp/gavel/engine"
)

// RateLimit lets each principal make so many requests a second, and burst at once.
// Operators are not limited: they are who mends things. Others are told 429 with the time
// after which the next request is taken. It stands behind Middleware; a request without an
// identity is refused.
func RateLimit(perSecond float64, burst int) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return &limiter{limit: rate.Limit(perSecond), burst: burst, next: next, buckets: map[string]*bucket{}}
	}
}

type limiter struct {
	limit rate.Limit
	burst int
	next  http.Handler

	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	*rate.Limiter
	used time.Time
}

// mostBuckets bounds how many principals are remembered; who has not called for
// idleBucket has a full bucket again anyway.
const (
	mostBuckets = 10_000
	idleBucket  = time.Minute
)

// ServeHTTP implements http.Handler.
func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ok := FromContext(r.Context())
	if !ok {
		writeProblem(w, http.StatusUnauthorized, "unauthenticated", "Send a token: Authorization: Bearer TOKEN.")
		return
	}
	if wait := l.take(id, time.Now()); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		writeProblem(w, http.StatusTooManyRequests, string(engine.CodeRateLimited), "You send more requests than one principal may. Wait, and send fewer.")
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
	b := l.buckets[id.ID]
	if b == nil {
		if len(l.buckets) >= mostBuckets {
			l.makeRoom(now)
		}
		b = &bucket{Limiter: rate.NewLimiter(l.limit, l.burst)}
		l.buckets[id.ID] = b
	}
	b.used = now
	place := b.ReserveN(now, 1)
	if wait := place.DelayFrom(now); wait > 0 {
		place.CancelAt(now)
		return wait
	}
	return 0
}

// makeRoom forgets who has not called for a while, and an eighth of all when nobody is
// left of them: not one at a time, each after a look at everybody.
func (l *limiter) makeRoom(now time.Time) {
	for id, b := range l.buckets {
		if now.Sub(b.used) >= idleBucket {
			delete(l.buckets, id)
		}
	}
	if len(l.buckets) < mostBuckets {
		return
	}
	n := mostBuckets / 8
	for id := range l.buckets {
		if n--; n < 0 {
			return
		}
		delete(l.buckets, id)
	}
}
