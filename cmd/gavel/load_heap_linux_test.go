package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Limits for what remains in the server's heap after its clients are gone, in total and per client. A third of the
// clients leave a session of about 23 KB, because no one ends it. The rest is the growth of the server's pools and
// caches, which a second round reuses.
const (
	keptOnce     = 8 << 20
	keptAgain    = 4 << 20
	keptOfClient = 12 << 10
	keptRoutines = 16 // for the store's connections and the sandbox's workers
)

// held is the heap and the goroutines of an idle server.
type held struct {
	heap, routines float64 // bytes; goroutines
}

// nothing is no limit.
var nothing = held{1 << 40, 1 << 20}

func (h held) String() string {
	return fmt.Sprintf("%.1f MB and %.0f goroutines", h.heap/(1<<20), h.routines)
}

// and returns the limits after a round of load.
func (h held) and(all, each int) held {
	return held{h.heap + float64(all+*loadClients*each), h.routines + keptRoutines}
}

// settled waits until an idle server holds no more than most, and returns the lowest values seen after two garbage
// collections. Two are needed because pools release their memory in the second. Requesting the metrics produces
// garbage, which triggers the collections.
func (l *load) settled(most held) held {
	l.t.Helper()
	first, least := -1.0, nothing
	for limit := time.After(3 * patience); ; {
		_, got := l.figures(l.owner)
		collected := numberIn(l.t, got, "go_gc_duration_seconds_count")
		if first < 0 {
			first = collected
		}
		if collected >= first+2 {
			least.heap = min(least.heap, numberIn(l.t, got, "go_memstats_heap_alloc_bytes"))
			least.routines = min(least.routines, numberIn(l.t, got, "go_goroutines"))
			if collected >= first+3 && least.heap <= most.heap && least.routines <= most.routines {
				return least
			}
		}
		select {
		case <-limit:
			l.t.Fatalf("an idle server holds %v; %v were to be expected at most", least, most)
		default:
		}
	}
}

// numberIn returns the value of a metric without labels.
func numberIn(t *testing.T, text, name string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no figure %s in %.300q", name, text)
	return 0
}
