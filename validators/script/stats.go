package script

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Stats counts since the Pool was made. All values only grow, except Waiting and
// Workers.
type Stats struct {
	Calls       uint64        // batches, checks and validations
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

type counters struct {
	calls, trips, scripts, timeouts, memory, kills, deaths, retries atomic.Uint64
	starts, recycled, refused, quarantined                          atomic.Uint64
	queueTime, workers, peak                                        atomic.Int64
}

// recordMemory keeps the greatest memory figure.
func (c *counters) recordMemory(bytes int64) {
	for old := c.peak.Load(); bytes > old && !c.peak.CompareAndSwap(old, bytes); old = c.peak.Load() {
	}
}

// Stats returns the counters.
func (p *Pool) Stats() Stats {
	c := &p.stats
	p.mu.Lock()
	for w := range p.procs {
		c.recordMemory(peakMemory(w.cmd.Process.Pid))
	}
	p.mu.Unlock()
	return Stats{
		Calls: c.calls.Load(), Trips: c.trips.Load(), Scripts: c.scripts.Load(), Timeouts: c.timeouts.Load(), Memory: c.memory.Load(),
		Kills: c.kills.Load(), Deaths: c.deaths.Load(), Retries: c.retries.Load(), Starts: c.starts.Load(),
		Recycled: c.recycled.Load(), Refused: c.refused.Load(), Quarantined: c.quarantined.Load(),
		QueueTime: time.Duration(c.queueTime.Load()), Waiting: p.eval.queue.Stats().Waiting + p.check.queue.Stats().Waiting,
		Workers: int(c.workers.Load()), PeakMemory: c.peak.Load(),
	}
}

// provenScripts is a bounded set of scripts that once ended well.
type provenScripts struct {
	seed maphash.Seed
	mu   sync.Mutex
	seen map[uint64]struct{}
}

func (p *provenScripts) hashSource(s Script) uint64 { return maphash.String(p.seed, s.Source) }

func (p *provenScripts) add(s Script) {
	k := p.hashSource(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.seen[k]; known {
		return
	}
	if p.seen == nil || len(p.seen) >= maxRecords {
		p.seen = map[uint64]struct{}{}
	}
	p.seen[k] = struct{}{}
}

func (p *provenScripts) has(s Script) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.seen[p.hashSource(s)]
	return known
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
