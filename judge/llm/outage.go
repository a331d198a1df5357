package llm

import (
	"context"
	"sync"
	"time"
)

// Outage is a period in which a model is not asked, except for occasional probes. Its breaker is open, or
// its endpoint hangs, asks for a longer pause than a question can wait, or fails in a way that only a
// person can fix.
type Outage struct {
	Model, Endpoint string
	Since           time.Time
	// Cause is the last failure before the outage.
	Cause LastError
	// Over is true if the outage has ended.
	Over bool
}

type outage struct {
	mu    sync.Mutex
	since time.Time // zero if there is no outage
}

// wrapOutage calls Config.Watch when an outage begins and when it ends. Both are detected when a question
// ends.
func (b *backend) wrapOutage(next Completer, cfg Config) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		reply, err := next.Complete(ctx, req)
		b.outage.mu.Lock()
		defer b.outage.mu.Unlock()
		began := b.outage.since
		if b.isDown(cfg.Deadline) == !began.IsZero() {
			return reply, err
		}
		o := Outage{Model: b.Name, Endpoint: b.inner.host, Since: began, Over: !began.IsZero()}
		b.outage.since = time.Time{}
		if !o.Over {
			o.Since = time.Now()
			b.outage.since = o.Since
			if _, _, last := b.seen.figures(); last != nil {
				o.Cause = *last
			}
		}
		if cfg.Watch != nil {
			cfg.Watch(o)
		}
		return reply, err
	})
}

func (b *backend) isDown(deadline time.Duration) bool {
	fail, _ := b.latch.current()
	return fail != nil || b.breaker.state() != "closed" || b.late.isDown() || b.gate.remaining() > deadline
}

func (b *backend) downSince() time.Time {
	b.outage.mu.Lock()
	defer b.outage.mu.Unlock()
	return b.outage.since
}
