package script

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Stats counts since the Pool was made. All values only grow, except Waiting and
// Workers.
type Stats struct {
	Calls       uint64        // batches and checks
	Trips       uint64        // requests sent to workers; one for each call that meets no fault
	Scripts     uint64        // outcomes received
	Timeouts    uint64        // scripts interrupted at the soft limit
	Memory      uint64        // scripts interrupted at the memory limit
	Kills       uint64        // workers killed at the hard limit
	Deaths      uint64        // workers that ended unasked: memory, crash, foreign signal
	Retries     uint64        // questions asked again of another worker
	Starts      uint64        // workers started
	Recycled    uint64        // workers replaced for age or after a fault
	Refused     uint64        // calls that got no worker in time, or whose line was too long
	Quarantined uint64        // scripts not run because of a quarantine
	QueueTime   time.Duration // spent waiting for a worker, all calls together
	Waiting     int           // calls waiting now
	Workers     int           // processes now
	// PeakMemory is the greatest resident size of a worker in bytes, as seen
	// before workers were killed or replaced and now. 0 where the platform does
	// not tell. A worker that ends itself takes its last figure with it.
	PeakMemory int64
}

// counters are the Stats that are counted as they happen.
type counters struct {
	mu sync.Mutex
	Stats
}

func (c *counters) add(field *uint64, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*field += uint64(n) //nolint:gosec // a count
}

func (c *counters) addQueueTime(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.QueueTime += d
}

// recordMemory keeps the greatest memory figure.
func (c *counters) recordMemory(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.PeakMemory = max(c.PeakMemory, bytes)
}

// Stats returns the counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	workers := len(p.procs)
	for w := range p.procs {
		p.stats.recordMemory(peakMemory(w.cmd.Process.Pid))
	}
	p.mu.Unlock()
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	out := p.stats.Stats
	out.Workers, out.Waiting = workers, p.eval.queue.Stats().Waiting+p.check.queue.Stats().Waiting
	return out
}

// Meter adds up what the sandbox does for the calls that are made with its context,
// whether they end well or not. It is safe for concurrent use; a nil Meter
// counts nothing.
type Meter struct{ worked, waited atomic.Int64 }

type meterKey struct{}

// WithMeter returns a context whose calls are metered.
func WithMeter(ctx context.Context) (context.Context, *Meter) {
	m := &Meter{}
	return context.WithValue(ctx, meterKey{}, m), m
}

// MeterOf returns the meter of a context; nil when it has none.
func MeterOf(ctx context.Context) *Meter {
	m, _ := ctx.Value(meterKey{}).(*Meter)
	return m
}

// AddWorked adds time that a worker spent.
func (m *Meter) AddWorked(d time.Duration) {
	if m != nil {
		m.worked.Add(int64(d))
	}
}

func (m *Meter) addWaited(d time.Duration) {
	if m != nil {
		m.waited.Add(int64(d))
	}
}

// Worked is the time that workers have spent.
func (m *Meter) Worked() time.Duration { return time.Duration(m.worked.Load()) }

// Waited is the time that calls have waited for a worker.
func (m *Meter) Waited() time.Duration { return time.Duration(m.waited.Load()) }
