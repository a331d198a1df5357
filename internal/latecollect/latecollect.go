// Package latecollect keeps the garbage collector from running while a process starts, and from
// running ten times a second while it is busy.
//
// A start allocates about 10 MB, nearly all in initialisers of packages, and the collector,
// which begins at 4 MB, would run three times to free little: a quarter of what a start
// costs, paid by every command and every script worker. Later, what stays in memory is small beside
// what requests use and leave, so that the collector would run after every few hundred of them:
// a third of the processor time of a decision. While collections follow one another within
// a second, the heap may grow by 48 MB between them; the first one after a quieter second ends that.
//
// Package main imports this one for that effect alone. It imports no package that
// allocates much, so that it is initialised before those that do. GOGC and a later SetGCPercent
// are obeyed: then it does nothing more.
package latecollect

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	percentAtStart = 300 // the heap grows to 12 MB before it is collected for the first time
	roomUnderLoad  = 48 << 20
	often          = time.Second // collections that follow one another sooner mean load
)

func init() {
	if _, chosen := os.LookupEnv("GOGC"); chosen {
		return
	}
	usual := debug.SetGCPercent(percentAtStart)
	pace{usual: usual, set: percentAtStart, often: often}.watch()
}

// pace is what the next collection has to know.
type pace struct {
	usual, set int       // percent: of the runtime, and in force
	last       time.Time // of the last collection
	often      time.Duration
}

// watch has adjust called after the next collection.
func (p pace) watch() {
	first := new([1]*int) // holds a pointer, so that it shares its memory with nothing else
	runtime.AddCleanup(first, pace.adjust, p)
}

func (p pace) adjust() {
	now := time.Now()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	next := p.percent(now.Sub(p.last), live[0].Value.Uint64())
	if chosen := debug.SetGCPercent(next); chosen != p.set { // by somebody else, since
		debug.SetGCPercent(chosen)
		return
	}
	p.set, p.last = next, now
	p.watch()
}

// percent is how far the heap may grow, when the last two collections were so far apart and left
// live bytes.
func (p pace) percent(apart time.Duration, live uint64) int {
	if apart >= p.often || live == 0 {
		return p.usual
	}
	return max(p.usual, int(roomUnderLoad*100/live)) //nolint:gosec // at most 48 MB * 100
}
