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

// Options configures Middleware.
type Options struct {
	// ResourceMetadata returns the address of the protected-resource document (RFC 9728) for a request; nil or ""
	// omits it.
	ResourceMetadata func(*http.Request) string
	// IsEvent reports whether a request posts an event; nil is for servers that take none. Only credentials for
	// events may do so, and they may do nothing else.
	IsEvent func(*http.Request) bool
	// MaxFailures is how many bad credentials an address may send per minute before it gets 429; 0 means 30. A valid
	// credential is always accepted.
	MaxFailures int
	// Recheck is how often the credential of a GET in progress, such as an event stream, is checked again; 0 means 10
	// seconds. The request thus ends soon after its credential.
	Recheck time.Duration
	Logger  *slog.Logger // required
}

// Gate identifies the senders of requests, and slows down addresses that send bad credentials.
type Gate struct {
	Authenticator
	options  Options
	failures *failures
}

// NewGate returns a Gate.
func NewGate(a Authenticator, o Options) *Gate {
	o.Recheck = cmp.Or(o.Recheck, 10*time.Second)
	return &Gate{Authenticator: a, options: o, failures: newFailures(cmp.Or(o.MaxFailures, 30), time.Minute)}
}

// TooManyFailuresError is returned if too many bad credentials came from an address.
type TooManyFailuresError struct{ Wait time.Duration }

func (e *TooManyFailuresError) Error() string {
	return "Too many bad credentials came from this address. Try again later with a valid one."
}

// Is reports that the credential is also bad.
func (*TooManyFailuresError) Is(target error) bool { return target == ErrBadCredential }

// Identify is Authenticate for a credential that came with a request. It counts bad ones by the request's address; above
// the limit, the error is a TooManyFailuresError.
func (g *Gate) Identify(r *http.Request, bearer string) (Identity, error) {
	id, err := g.Authenticate(r.Context(), bearer)
	if err != nil && !errors.Is(err, ErrNoCredential) && !errors.Is(err, ErrUnavailable) {
		if wait := g.failures.recordFailure(listen.AddressOf(r.RemoteAddr), time.Now()); wait > 0 {
			return Identity{}, &TooManyFailuresError{Wait: wait}
		}
	}
	return id, err //nolint:wrapcheck // one of this package
}

// Middleware admits only requests whose credential the authenticator knows. The handler finds the Identity in the
// request's context; the credential is removed from the request.
func Middleware(a Authenticator, o Options) func(http.Handler) http.Handler {
	return NewGate(a, o).Middleware
}

// Middleware is the function Middleware for this gate.
func (g *Gate) Middleware(next http.Handler) http.Handler { return &gatekeeper{g, next} }

type gatekeeper struct {
	*Gate

	next http.Handler
}

// maxCredential is the maximum length of a credential in bytes.
const maxCredential = 16 << 10

// ServeHTTP implements http.Handler.
func (g *gatekeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bearer, wellFormed := bearerOf(r)
	if !wellFormed {
		g.challenge(w, r, `error="invalid_request"`)
		listen.WriteProblem(w, http.StatusBadRequest, "invalid_request", "Send one Authorization header, with the scheme Bearer and a token.")
		return
	}
	id, err := g.Identify(r, bearer)
	isEvent := g.options.IsEvent != nil && g.options.IsEvent(r)
	switch {
	case err == nil && isEvent && !id.MayPostEvents():
		listen.WriteProblem(w, http.StatusForbidden, string(engine.CodeForbidden), "This credential may not post events. Create a token for them: gavel hook install CLIENT --server URL, or gavel token create NAME --hooks FOLDER.")
	case err == nil && !isEvent && id.Events != "":
		listen.WriteProblem(w, http.StatusForbidden, string(engine.CodeForbidden), "This token may only post events. Use another token (gavel token create).")
	case err == nil:
		again := func(ctx context.Context) error {
			_, err := g.Authenticate(ctx, bearer)
			return err
		}
		r = r.WithContext(context.WithValue(NewContext(r.Context(), id), againKey{}, again))
		r.Header = maps.Clone(r.Header)
		r.Header.Del("Authorization")
		if r.Method == http.MethodGet { // any GET may be a stream, whatever its Accept header says
			ctx, stop := g.contextWhileValid(r.Context())
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
		if many, ok := errors.AsType[*TooManyFailuresError](err); ok {
			w.Header().Set("Retry-After", strconv.Itoa(int(many.Wait/time.Second)+1))
			listen.WriteProblem(w, http.StatusTooManyRequests, "too_many_failures", many.Error())
			return
		}
		g.challenge(w, r, `error="invalid_token"`)
		listen.WriteProblem(w, http.StatusUnauthorized, "invalid_token", "The token is not valid.")
	}
}

// contextWhileValid returns a context that ends when the credential is no longer valid. If the check is not possible, it
// continues, because the stream was admitted before.
func (g *gatekeeper) contextWhileValid(parent context.Context) (ctx context.Context, stop func()) {
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

// bearerOf returns the credential of a request, or "". It returns false if the header does not conform to RFC 6750.
// Only the header is used, because addresses end up in logs.
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

// challenge sets the header that names the required kind of credential (RFC 6750, RFC 9728).
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

// RateLimit limits each principal to perSecond requests per second, with bursts of burst requests. Operators are not
// limited, because they fix problems. Others get 429 with the time after which the next request is accepted. It runs
// after Middleware; a request without an identity is refused.
func RateLimit(perSecond float64, burst int) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return &limiter{limit: rate.Limit(perSecond), burst: burst, next: next, buckets: newLRU[string, *rate.Limiter]()}
	}
}

// maxRemembered limits how many principals, and how many addresses with bad credentials, are remembered. The least
// recently seen are forgotten.
const maxRemembered = 10_000

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
	if wait := l.reserve(id, time.Now()); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		listen.WriteProblem(w, http.StatusTooManyRequests, string(engine.CodeRateLimited), fmt.Sprintf("Too many requests: a principal may send %v a second, in bursts of up to %d (--rate, --rate-burst; serve.rate, serve.rateBurst). Wait for the time in Retry-After, and send fewer.", float64(l.limit), l.burst))
		return
	}
	l.next.ServeHTTP(w, r)
}

// reserve reserves a request, or returns how long to wait.
func (l *limiter) reserve(id Identity, now time.Time) time.Duration {
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

// failures counts bad credentials by address. Each span begins with the first failure.
type failures struct {
	limit int
	span  time.Duration

	mu   sync.Mutex
	seen *simplelru.LRU[netip.Prefix, failureCount]
}

type failureCount struct {
	since time.Time
	n     int
}

func newFailures(limit int, span time.Duration) *failures {
	return &failures{limit: limit, span: span, seen: newLRU[netip.Prefix, failureCount]()}
}

func newLRU[K comparable, V any]() *simplelru.LRU[K, V] {
	kept, _ := simplelru.NewLRU[K, V](maxRemembered, nil) // an error is only possible for a size below 1
	return kept
}

// recordFailure counts a failure and returns how long the address must wait; 0 means not at all.
func (f *failures) recordFailure(from netip.Prefix, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, _ := f.seen.Get(from)
	if now.Sub(was.since) >= f.span {
		was = failureCount{since: now}
	}
	was.n++
	f.seen.Add(from, was)
	if was.n <= f.limit {
		return 0
	}
	return f.span - now.Sub(was.since)
}
