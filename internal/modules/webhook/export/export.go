// Package export hands on what is recorded to programs that have to have all of it: webhooks. Each
// reader has a cursor in the store and reads the log behind it, as an auditor sees it: without
// data and context, sensitive values masked.
//
// It promises that every event that a webhook selects arrives at least once, with the same id each
// time, and those of one instance in their order; that of all processes over a store one sends, by
// a lease; that an event which a receiver does not accept while it accepts others becomes a dead
// letter in the store; and that no advance ever waits for any of it. A receiver that accepts
// nothing is waited for, however long that takes.
//
// It must never put an address into a log, nor show a receiver what an auditor may not see.
package export

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Store is what an Exporter needs of a store.
type Store interface {
	store.Leases
	store.Cursors
	store.DeadLetters
	LastPosition(ctx context.Context) (int64, error)
}

// Exporter sends to the webhooks of a configuration while it runs.
type Exporter struct {
	engine *engine.Engine
	store  Store
	log    *slog.Logger
	owner  string // of leases

	loading sync.Mutex         // held while senders change
	begin   func()             // starts the senders; nil before Run
	cancel  context.CancelFunc // ends them
	running sync.WaitGroup

	mu      sync.Mutex
	senders []*sender
}

// New returns an Exporter without webhooks.
func New(e *engine.Engine, db Store, log *slog.Logger) *Exporter {
	return &Exporter{engine: e, store: db, log: log, owner: rand.Text()}
}

// Load puts webhooks in the place of those before, whose cursors stay in the store. With an error
// nothing changes.
func (x *Exporter) Load(all []Webhook) error {
	take, err := x.Prepare(all)
	if err == nil {
		take()
	}
	return err
}

// Prepare is Load in two parts: it checks, and take takes.
func (x *Exporter) Prepare(all []Webhook) (take func(), err error) {
	var next []*sender
	for _, h := range all {
		end, err := h.Open()
		if err != nil {
			return nil, err
		}
		next = append(next, newSender(x, h, end))
	}
	return func() { x.replace(next) }, nil
}

// replace has other senders send.
func (x *Exporter) replace(next []*sender) {
	x.loading.Lock()
	defer x.loading.Unlock()
	if x.begin != nil {
		x.cancel()
		x.running.Wait() // both have the name of a lease
	}
	x.mu.Lock()
	x.senders = next
	x.mu.Unlock()
	if x.begin != nil {
		x.begin()
	}
}

// Run sends until the returned function is called, which waits for what is on its way.
func (x *Exporter) Run(ctx context.Context) (stop func()) {
	x.loading.Lock()
	defer x.loading.Unlock()
	x.begin = func() { x.start(ctx) }
	x.begin()
	return func() {
		x.loading.Lock()
		defer x.loading.Unlock()
		x.cancel()
		x.running.Wait()
	}
}

// start starts every sender. The caller holds loading.
func (x *Exporter) start(ctx context.Context) {
	ctx, x.cancel = context.WithCancel(ctx)
	last, err := x.store.LastPosition(ctx)
	if err != nil {
		last = unknownPlace
	}
	for _, s := range x.senders {
		s.began = last
		x.running.Go(func() {
			defer s.to.Close()
			s.run(ctx)
		})
	}
}

// Stats are what one webhook did since the start of this process, and where it is.
type Stats struct {
	Webhook string
	// Delivered messages were accepted; Failed counts tries that were not, Dead the dead letters.
	Delivered, Failed, Dead uint64
	// Sending says that this process has the lease.
	Sending bool
	// Known says that the store could tell Behind, how many positions are above the cursor, and
	// Waited, how long it has not moved; 0 where nothing is above it.
	Known  bool
	Behind int64
	Waited time.Duration
}

// Stats returns the figures of every webhook.
func (x *Exporter) Stats(ctx context.Context) []Stats {
	x.mu.Lock()
	var out []Stats
	for _, s := range x.senders {
		out = append(out, Stats{Webhook: s.hook.Name, Delivered: s.delivered.Load(), Failed: s.failed.Load(), Dead: s.dead.Load(), Sending: s.sending.Load()})
	}
	x.mu.Unlock()
	if out == nil {
		return nil
	}
	cursors, err := x.store.Cursors(ctx)
	if err != nil {
		return out
	}
	last, err := x.store.LastPosition(ctx)
	if err != nil {
		return out
	}
	for i := range out {
		for _, c := range cursors {
			if c.Name != CursorPrefix+out[i].Webhook {
				continue
			}
			out[i].Known = true
			if c.Position < last {
				out[i].Behind, out[i].Waited = last-c.Position, max(0, time.Since(c.MovedAt))
			}
		}
	}
	return out
}
