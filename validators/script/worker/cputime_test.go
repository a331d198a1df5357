package worker

import (
	"testing"
	"time"
)

func TestStarved(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	for used, want := range map[time.Duration]bool{
		0:                     false, // not known
		time.Millisecond:      true,
		37 * time.Millisecond: true,
		38 * time.Millisecond: false,
		limit:                 false,
		4 * limit:             false, // the collector runs on other processors
	} {
		if got := isStarved(used, limit); got != want {
			t.Errorf("%v of %v: %t", used, limit, got)
		}
	}
}

func TestProcessorTimeGrowsWithWork(t *testing.T) {
	t.Parallel()
	if processorTime() == 0 {
		t.Skip("this system does not say")
	}
	before, x := processorTime(), 0
	for began := time.Now(); processorTime() == before && time.Since(began) < 20*time.Second; x++ {
	}
	if processorTime() <= before {
		t.Errorf("stands still after %d rounds", x)
	}
}
