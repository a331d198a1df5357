package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/listen"
)

// Options of Middleware.
type Options struct {
	// ResourceMetadata is the address of the protected-resource document (RFC 9728) for a
	// request; nil, or "", leaves it out.
	ResourceMetadata func(*http.Request) string
	// IsHook reports whether a request posts a hook event; nil is for servers that take none.
	// Only credentials for hook events may, and they may do nothing else.
	IsHook func(*http.Request) bool
	// MaxFailures is how many bad credentials one address may send in a minute before it is
	// answered 429; 0 is 30. A valid credential is always accepted.
	MaxFailures int
	// Recheck is how often the credential of a GET that is still answered, an event stream
	// then, is looked at again, so that it ends soon after the credential does; 0 is 10
	// seconds.
	Recheck time.Duration
	Logger  *slog.Logger // required
}

// Middleware lets only requests through whose credential the authenticator knows. The
// handler finds the Identity in the request's context, and the credential nowhere.
func Middleware(a Authenticator, o Options) func(http.Handler) http.Handler {
	o.Recheck = cmp.Or(o.Recheck, 10*time.Second)
	return func(next http.Handler) http.Handler {
		return &gatekeeper{authenticator: a, options: o, next: next, failures: newFailures(cmp.Or(o.MaxFailures, 30), time.Minute)}
	}
}

type gatekeeper struct {
	authenticator Authenticator
	options       Options
	next          http.Handler
	failures      *failures
}

// maxCredential is the longest credential in bytes.
const maxCredential = 16 << 10

// ServeHTTP implements http.Handler.
func (g *gatekeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bearer, wellFormed := bearerOf(r)
	if !wellFormed {
		g.challenge(w, r, `error="invalid_request"`)
		listen.WriteProblem(w, http.StatusBadRequest, "invalid_request", "Send one Authorization header, with the scheme Bearer and a token.")
		return
	}
	id, err := g.authenticator.Authenticate(r.Context(), bearer)
	isHook := g.options.IsHook != nil && g.options.IsHook(r)
	switch {
	case err == nil && isHook && !id.MayPostHooks():
		listen.WriteProblem(w, http.StatusForbidden, string(engine.CodeForbidden), "This credential may not post hook events. Make a token for them: gavel hook install CLIENT --server URL, or gavel token create NAME --hooks FOLDER.")
	case err == nil && !isHook && id.Hooks != "":
		listen.WriteProblem(w, http.StatusForbidden, string(engine.CodeForbidden), "This token may post hook events and do nothing else. Use another token (gavel token create).")
	case err == nil:
		again := func(ctx context.Context) error {
			_, err := g.authenticator.Authenticate(ctx, bearer)
			return err
		}
		r = r.WithContext(context.WithValue(NewContext(r.Context(), id), againKey{}, again))
		r.Header = maps.Clone(r.Header)
		r.Header.Del("Authorization")
		if r.Method == http.MethodGet { // whichever way Accept asks for a stream
			ctx, stop := g.whileValid(r.Context())
			defer stop()
			r = r.WithContext(ctx)
		}
		g.next.ServeHTTP(w, r)
	case errors.Is(err, ErrNoCredential):
		g.challenge(w, r, "")
		listen.WriteProblem(w, http.StatusUnauthorized, "unauthenticated", "Send a token: Authorization: Bearer TOKEN.")
	case errors.Is(err, ErrUnavailable):
		g.options.Logger.Error("credentials cannot be checked", "error", err)
		w.Header().Set("Retry-After", "5")
		listen.WriteProblem(w, http.StatusServiceUnavailable, "unavailable", "Credentials cannot be checked now. Try again later.")
	default:
		if wait := g.failures.recordFailure(listen.AddressOf(r.RemoteAddr), time.Now()); wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
			listen.WriteProblem(w, http.StatusTooManyRequests, "too_many_failures", "Too many bad credentials came from this address. Try again later with a valid one.")
			return
		}
		g.challenge(w, r, `error="invalid_token"`)
		listen.WriteProblem(w, http.StatusUnauthorized, "invalid_token", "The token is not valid.")
	}
}

// whileValid is a context that ends when the credential is no longer valid. When that
// cannot be determined, it goes on: the stream was let in once.
func (g *gatekeeper) whileValid(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		again := time.NewTicker(g.options.Recheck)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
				if !StillValid(ctx) {
					cancel()
				}
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}

// bearerOf is the credential of a request, "" for none; false when the header is not one
// of RFC 6750. Only the header counts: addresses end up in logs.
func bearerOf(r *http.Request) (bearer string, wellFormed bool) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", true
	}
	scheme, bearer, found := strings.Cut(values[0], " ")
	bearer = strings.Trim(bearer, " ")
	if len(values) > 1 || !found || !strings.EqualFold(scheme, "Bearer") || bearer == "" || len(bearer) > maxCredential {
		return "", false
	}
	return bearer, !strings.ContainsFunc(bearer, func(c rune) bool { return c <= ' ' || c > '~' || c == ',' })
}

// challenge says what kind of credential is wanted (RFC 6750, RFC 9728).
func (g *gatekeeper) challenge(w http.ResponseWriter, r *http.Request, more string) {
	parts := []string{`realm="gavel"`}
	if g.options.ResourceMetadata != nil {
		if address := g.options.ResourceMetadata(r); address != "" {
			parts = append(parts, fmt.Sprintf("resource_metadata=%q", address))
		}
	}
	if more != "" {
		parts = append(parts, more)
	}
	w.Header().Set("WWW-Authenticate", "Bearer "+strings.Join(parts, ", "))
}

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
