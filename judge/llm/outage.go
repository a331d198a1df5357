package llm

import (
	"context"
	"sync"
	"time"
)

// Outage is a time in which a model is not asked, or only now and then to see whether it
// answers again: its breaker is open, its endpoint hangs, wants a pause that no question can
// wait for, or fails in a way that only a person can fix.
type Outage struct {
	Model, Endpoint string
	Since           time.Time
	// Cause is the last failure before it.
	Cause LastError
	// Over is true when the model answers again.
	Over bool
}

type outage struct {
	mu    sync.Mutex
	since time.Time // zero: there is none
}

// wrapOutage tells watch when an outage begins and when it is over. Both are seen when a
// question ends.
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
