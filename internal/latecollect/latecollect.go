// Package latecollect keeps the garbage collector from running while a process starts, and from running ten times a
// second under load.
//
// A start allocates about 10 MB, nearly all in package initialisers. The collector, which starts at 4 MB, would run
// three times and free little. That would be a quarter of the cost of a start, for every command and every script
// worker. Later, the live heap is small compared with the garbage of requests, so the collector would run after every
// few hundred requests. That would take a third of the processor time of a decision. While collections follow one
// another within a second, the heap may therefore grow by 48 MB between them. The first collection after a longer
// pause ends that.
//
// Package main imports this package only for its side effect. It imports no package that allocates much, so that it
// is initialised before those that do. It respects GOGC and a later SetGCPercent: it then does nothing more.
package latecollect

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	percentAtStart = 300 // the first collection is at 12 MB
	roomUnderLoad  = 48 << 20
	often          = time.Second // a shorter interval between collections means load
)

func init() {
	if _, chosen := os.LookupEnv("GOGC"); chosen {
		return
	}
	usual := debug.SetGCPercent(percentAtStart)
	pace{usual: usual, set: percentAtStart, often: often}.watch()
}

// pace is the state passed from one collection to the next.
type pace struct {
	usual, set int       // percent: the runtime's default, and the value in force
	last       time.Time // time of the last collection
	often      time.Duration
}

// watch arranges for adjust to run after the next collection.
func (p pace) watch() {
	first := new([1]*int) // contains a pointer, so that it shares its allocation with no other object
	runtime.AddCleanup(first, pace.adjust, p)
}

func (p pace) adjust() {
	now := time.Now()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	next := p.percent(now.Sub(p.last), live[0].Value.Uint64())
	if chosen := debug.SetGCPercent(next); chosen != p.set { // someone else has set it since
		debug.SetGCPercent(chosen)
		return
	}
	p.set, p.last = next, now
	p.watch()
}

// percent returns the GC percentage to use, given the time between the last two collections and the live heap in
// bytes.
func (p pace) percent(apart time.Duration, live uint64) int {
	if apart >= p.often || live == 0 {
		return p.usual
	}
	return max(p.usual, int(roomUnderLoad*100/live)) //nolint:gosec // at most 48 MB * 100
}
