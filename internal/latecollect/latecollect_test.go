package latecollect

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercent(t *testing.T) {
	p := pace{usual: 100, often: time.Second}
	for _, c := range []struct {
		apart time.Duration
		live  uint64
		want  int
	}{
		{time.Hour, 8 << 20, 100},
		{time.Second, 8 << 20, 100},
		{time.Second - 1, 8 << 20, 600},
		{0, 24 << 20, 200},
		{0, 48 << 20, 100},
		{0, 1 << 40, 100}, // a large heap is left to the default
		{0, 0, 100},
	} {
		if got := p.percent(c.apart, c.live); got != c.want {
			t.Errorf("%v apart, %d bytes live: %d %%, want %d", c.apart, c.live, got, c.want)
		}
	}
}

// TestPace follows one process: start, load, quiet, and a value set by someone else.
func TestPace(t *testing.T) {
	if _, chosen := os.LookupEnv("GOGC"); chosen {
		t.Skip("GOGC is set")
	}
	debug.SetGCPercent(90) // ends the watch that init started
	collectUntil(t, "the first choice is obeyed", 0, func(percent int) bool { return percent == 90 })
	usual := debug.SetGCPercent(percentAtStart)
	defer debug.SetGCPercent(100)
	pace{usual: usual, set: percentAtStart, often: 50 * time.Millisecond}.watch()

	collectUntil(t, "the start is over", 100*time.Millisecond, func(percent int) bool { return percent == usual })
	collectUntil(t, "load", 0, func(percent int) bool { return percent > percentAtStart })
	collectUntil(t, "quiet again", 100*time.Millisecond, func(percent int) bool { return percent == usual })
	debug.SetGCPercent(77)
	for range 3 { // the first two are observed, then the watch has ended
		collectUntil(t, "another choice", 0, func(percent int) bool { return percent == 77 })
	}
}

// collectUntil collects with pauses until the GC percentage is as wanted.
func collectUntil(t *testing.T, what string, pause time.Duration, wanted func(percent int) bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(pause) {
		collected := make(chan bool, 1)
		runtime.AddCleanup(new([1]*int), func(done chan bool) { done <- true }, collected)
		runtime.GC()
		<-collected // other cleanups have run by now, or will at the next collection
		percent := readPercent()
		if wanted(percent) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: the collector still waits for %d %%", what, percent)
		}
	}
}

func readPercent() int {
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(percent)
	return int(percent[0].Value.Uint64()) //nolint:gosec // a percentage
}
