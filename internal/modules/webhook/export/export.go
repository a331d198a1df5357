// Package export sends every recorded event to webhooks. Each webhook has a cursor in the store and reads the log
// from there on, as an auditor sees it: without data and context, and with sensitive values masked.
//
// It guarantees:
//
//   - Every event that a webhook selects arrives at least once, with the same id each time.
//   - The events of an instance arrive in order.
//   - Of all processes that share a store, a lease lets only one send.
//   - An event that a receiver does not accept, while it accepts others, becomes a dead letter in the store.
//   - For a receiver that accepts nothing, the exporter waits as long as it takes.
//   - No advance ever waits for an export.
//
// It must never log an address, or show a receiver what an auditor may not see.
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

// Store is the part of a store that an Exporter needs.
type Store interface {
	store.Leases
	store.Cursors
	store.DeadLetters
	LastPosition(ctx context.Context) (int64, error)
}

// Exporter sends to the configured webhooks while it runs.
type Exporter struct {
	engine *engine.Engine
	store  Store
	log    *slog.Logger
	owner  string // of leases

	loading sync.Mutex         // held while senders change
	begin   func()             // starts the senders; nil before Run
	cancel  context.CancelFunc // ends the senders
	running sync.WaitGroup

	mu      sync.Mutex
	senders []*sender
}

// New returns an Exporter without webhooks.
func New(e *engine.Engine, db Store, log *slog.Logger) *Exporter {
	return &Exporter{engine: e, store: db, log: log, owner: rand.Text()}
}

// Load replaces the webhooks; the cursors of the previous ones stay in the store. If it returns an error, nothing
// changes.
func (e *Exporter) Load(all []Webhook) error {
	take, err := e.Prepare(all)
	if err == nil {
		take()
	}
	return err
}

// Prepare is Load in two steps: it checks the webhooks, and take replaces the previous ones.
func (e *Exporter) Prepare(all []Webhook) (take func(), err error) {
	var next []*sender
	for _, h := range all {
		end, err := h.Open()
		if err != nil {
			return nil, err
		}
		next = append(next, newSender(e, h, end))
	}
	return func() { e.replace(next) }, nil
}

// replace replaces the senders.
func (e *Exporter) replace(next []*sender) {
	e.loading.Lock()
	defer e.loading.Unlock()
	if e.begin != nil {
		e.cancel()
		e.running.Wait() // old and new senders share the name of a lease
	}
	e.mu.Lock()
	e.senders = next
	e.mu.Unlock()
	if e.begin != nil {
		e.begin()
	}
}

// Run sends until the returned function is called, which waits for sends in flight.
func (e *Exporter) Run(ctx context.Context) (stop func()) {
	e.loading.Lock()
	defer e.loading.Unlock()
	e.begin = func() { e.start(ctx) }
	e.begin()
	return func() {
		e.loading.Lock()
		defer e.loading.Unlock()
		e.cancel()
		e.running.Wait()
	}
}

// start starts every sender. Callers must hold loading.
func (e *Exporter) start(ctx context.Context) {
	ctx, e.cancel = context.WithCancel(ctx)
	last, err := e.store.LastPosition(ctx)
	if err != nil {
		last = unknownPosition
	}
	for _, s := range e.senders {
		s.began = last
		e.running.Go(func() {
			defer s.to.Close()
			s.run(ctx)
		})
	}
}

// Stats holds the counters of a webhook since the start of this process, and its position.
type Stats struct {
	Webhook string
	// Delivered counts accepted messages, Failed tries that were not accepted, and Dead dead letters.
	Delivered, Failed, Dead uint64
	// Sending reports whether this process holds the lease.
	Sending bool
	// Known reports whether Behind and Waited could be read from the store. Behind is the number of positions above
	// the cursor. Waited is how long the cursor has not moved; 0 if nothing is above it.
	Known  bool
	Behind int64
	Waited time.Duration
}

// Stats returns the counters of every webhook.
func (e *Exporter) Stats(ctx context.Context) []Stats {
	e.mu.Lock()
	var out []Stats
	for _, s := range e.senders {
		out = append(out, Stats{Webhook: s.hook.Name, Delivered: s.delivered.Load(), Failed: s.failed.Load(), Dead: s.dead.Load(), Sending: s.sending.Load()})
	}
	e.mu.Unlock()
	if out == nil {
		return nil
	}
	cursors, err := e.store.Cursors(ctx)
	if err != nil {
		return out
	}
	last, err := e.store.LastPosition(ctx)
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
