package latecollect

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestUsualAfterTheFirstCollection wants nothing left of the start once the heap was collected.
func TestUsualAfterTheFirstCollection(t *testing.T) {
	if _, chosen := os.LookupEnv("GOGC"); chosen {
		t.Skip("GOGC is set")
	}
	current := func() int {
		percent := debug.SetGCPercent(-1)
		debug.SetGCPercent(percent)
		return percent
	}
	for deadline := time.Now().Add(10 * time.Second); current() != 100; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("the collector still waits for %d %%", current())
		}
	}
}
