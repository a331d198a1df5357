package script

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Stats are counts since the Pool was created. All values only grow, except Waiting and Workers.
type Stats struct {
	Calls       uint64        // batches, checks and documents
	Trips       uint64        // requests sent to workers; a call without faults needs one
	Scripts     uint64        // outcomes received
	Timeouts    uint64        // scripts interrupted at the soft limit
	Memory      uint64        // scripts interrupted at the memory limit
	Kills       uint64        // workers killed at the hard limit
	Deaths      uint64        // workers lost otherwise: memory, crash, invalid output, external signal
	Retries     uint64        // repeats after a timeout or a lost worker
	Starts      uint64        // workers started
	Recycled    uint64        // workers replaced because of age or after a fault
	Refused     uint64        // calls that got no worker in time or were dropped from the queue
	Quarantined uint64        // scripts not run because of a quarantine
	QueueTime   time.Duration // time spent waiting for a worker, all calls together
	Waiting     int           // calls that are waiting now
	Workers     int           // worker processes now
	// PeakMemory is the largest resident size of any worker in bytes. It is sampled when workers are killed or
	// replaced, and by Stats. Workers that exit on their own are not sampled. It is 0 if the platform does not
	// report it.
	PeakMemory int64
}

// counters are the Stats that are counted as events occur.
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

// recordMemory updates the peak memory.
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

// Meter sums the sandbox's work for all calls made with its context, successful or not. It is safe for
// concurrent use. A nil Meter counts nothing.
type Meter struct{ worked, waited atomic.Int64 }

type meterKey struct{}

// WithMeter returns a context and the Meter of all calls made with it.
func WithMeter(ctx context.Context) (context.Context, *Meter) {
	m := &Meter{}
	return context.WithValue(ctx, meterKey{}, m), m
}

// MeterOf returns the meter of a context, or nil if it has none.
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

// Worked returns the time that workers have spent.
func (m *Meter) Worked() time.Duration { return time.Duration(m.worked.Load()) }

// Waited returns the time that calls have waited for a worker.
func (m *Meter) Waited() time.Duration { return time.Duration(m.waited.Load()) }
