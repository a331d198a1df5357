package worker

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"

	"github.com/gavel-mcp/gavel/validators/script"
)

// tick is the watchdog's interval while a script runs.
const tick = time.Millisecond

// watchdog interrupts scripts that run too long or use too much memory, and ends the process if an interrupt
// has no effect. It sleeps while nothing runs.
type watchdog struct {
	setup   script.Setup
	current atomic.Pointer[run]
	dormant atomic.Bool
	wake    chan struct{}
	recycle atomic.Bool
	sample  []metrics.Sample // for the watchdog's goroutine
	own     []metrics.Sample // for the evaluating goroutine
	atStart uint64           // memory of the process at start
}

type run struct {
	vm    atomic.Pointer[goja.Runtime] // set once there is something to interrupt
	began atomic.Int64                 // start of the script itself, in nanoseconds since origin
	heap  uint64                       // before the run
	first int64                        // start of the run including preparations, in nanoseconds since origin
	limit int64                        // in nanoseconds
}

// origin is the time from which monotonic times are counted, so that they fit in an atomic integer.
var origin = time.Now()

func newWatchdog(setup script.Setup) *watchdog {
	w := &watchdog{setup: setup, wake: make(chan struct{}, 1), sample: newSamples(), own: newSamples()}
	w.dormant.Store(true)
	w.atStart, _ = readMemory(w.own)
	go w.loop()
	return w
}

func newSamples() []metrics.Sample {
	return []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
}

func readMemory(s []metrics.Sample) (heap, stacks uint64) {
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}

// begin starts watching a run, which must end within twice the limit.
func (w *watchdog) begin(limit time.Duration) *run {
	heap, _ := readMemory(w.own)
	r := &run{heap: heap, first: int64(time.Since(origin)), limit: int64(limit)}
	w.current.Store(r)
	if w.dormant.Load() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	return r
}

func (r *run) start(vm *goja.Runtime, at time.Time) {
	r.began.Store(int64(at.Sub(origin)))
	r.vm.Store(vm)
}

func (w *watchdog) end() { w.current.Store(nil) }

func (w *watchdog) loop() {
	const patience = 100 // ticks without work before the watchdog sleeps
	for {
		w.dormant.Store(true)
		if w.current.Load() == nil {
			<-w.wake
		}
		w.dormant.Store(false)
		for idle := 0; idle < patience; {
			time.Sleep(tick)
			if r := w.current.Load(); r != nil {
				idle = 0
				w.check(r)
			} else {
				idle++
			}
		}
		w.release()
	}
}

// release returns the memory of a burst of scripts to the system. The Go runtime alone would take minutes.
func (w *watchdog) release() {
	const worth = 8 << 20
	left := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(left)
	if left[0].Value.Uint64()+left[1].Value.Uint64() > w.atStart+worth {
		debug.FreeOSMemory()
	}
}

func (w *watchdog) check(r *run) {
	now := int64(time.Since(origin))
	heap, stacks := readMemory(w.sample)
	if now-r.first < int64(tick) {
		return // the run has only just begun
	}
	if heap+stacks > w.atStart+uint64(w.setup.WorkerMemory) { //nolint:gosec // positive by validation
		os.Exit(script.ExitMemory)
	}
	if now-r.first > 2*r.limit {
		os.Exit(script.ExitStuck)
	}
	if heap > w.atStart+64<<20 {
		w.recycle.Store(true)
	}
	vm := r.vm.Load()
	if vm == nil {
		return
	}
	switch {
	case heap > r.heap+uint64(w.setup.ScriptMemory): //nolint:gosec // positive by validation
		vm.Interrupt(errHeap)
	case now-r.began.Load() > int64(w.setup.Soft):
		vm.Interrupt(errSoft)
	}
}
