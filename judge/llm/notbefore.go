package llm

import (
	"context"
	"sync"
	"time"
)

// longestWait bounds for how long an endpoint can send everybody away.
const longestWait = 10 * time.Minute

// notBefore remembers when an endpoint wants to be asked again.
type notBefore struct {
	mu    sync.Mutex
	until time.Time
	limit Class // why
}

func (g *notBefore) remaining() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.until)
}

func (g *notBefore) closeFor(d time.Duration, limit Class) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := time.Now().Add(min(d, longestWait)); until.After(g.until) {
		g.until, g.limit = until, limit
	}
}

// refusal is the error while the endpoint wants to be left alone, nil otherwise.
func (g *notBefore) refusal() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := time.Until(g.until)
	if left <= 0 {
		return nil
	}
	return &Error{Class: ClassNotBefore, Limit: g.limit, Message: "the endpoint asked to be left alone for a while", RetryAfter: left}
}

// withNotBefore keeps everybody from an endpoint that said when to come back.
func withNotBefore(next Completer, g *notBefore) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if err := g.refusal(); err != nil {
			return Reply{}, err
		}
		reply, err := next.Complete(ctx, req)
		if fail := asError(err); fail != nil && fail.RetryAfter > 0 && (fail.Class == ClassRateLimited || fail.Class == ClassOverloaded) {
			g.closeFor(fail.RetryAfter, fail.Class)
		}
		return reply, err
	})
}
