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
}

func (g *notBefore) left() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Until(g.until)
}

func (g *notBefore) shut(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := time.Now().Add(min(d, longestWait)); until.After(g.until) {
		g.until = until
	}
}

// withNotBefore keeps everybody from an endpoint that said when to come back.
func withNotBefore(next Completer, g *notBefore) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		if left := g.left(); left > 0 {
			return Reply{}, tooEarly(left)
		}
		reply, err := next.Complete(ctx, req)
		if fail := ours(err); fail != nil && fail.RetryAfter > 0 && (fail.Class == ClassRateLimited || fail.Class == ClassOverloaded) {
			g.shut(fail.RetryAfter)
		}
		return reply, err
	})
}

func tooEarly(left time.Duration) *Error {
	return &Error{Class: ClassNotBefore, Message: "the endpoint asked to be left alone for a while", RetryAfter: left}
}
