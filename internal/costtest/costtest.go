// Package costtest measures the cost of reading a text, for tests that limit it. Its figures are robust on a busy
// machine: it measures processor time if the system reports it, and live memory instead of allocations.
package costtest

import (
	"bytes"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// Limits for one text: this much for each unit of its length, and at least a quarter of that.
const (
	unit   = 64 << 10
	Time   = 2 * time.Second // for each unit; more under the race detector
	Memory = 64 << 20        // live bytes, for each unit
	rounds = 10              // attempts until one is within both limits
)

// T is the part of testing.TB that this package needs.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Cost is the cost of one call.
type Cost struct {
	Time   time.Duration
	Memory uint64 // peak of live memory, minus the memory in use before
}

// CheckBound fails the test if read costs more than a text of size bytes may. It repeats a round that exceeds the limit,
// because noise of the machine can only add to the cost.
func CheckBound(t T, size int, read func()) {
	t.Helper()
	share := max(float64(size)/unit, 0.25)
	mostTime, mostMemory := time.Duration(share*slowdown*float64(Time)), uint64(share*float64(Memory))
	var least Cost
	for round := range rounds {
		c := measureCost(read, mostMemory)
		if round == 0 {
			least = c
		}
		least = Cost{Time: min(c.Time, least.Time), Memory: min(c.Memory, least.Memory)}
		if least.Time <= mostTime && least.Memory <= mostMemory {
			return
		}
	}
	t.Errorf("%d bytes cost %v and %d KiB; at most %v and %d KiB are allowed", size, least.Time, least.Memory>>10, mostTime, mostMemory>>10)
}

var measuring sync.Mutex // serialises measurements: both figures are for the whole process

// measureCost measures once. A memory figure of at most enough bytes may be the amount allocated instead of the peak.
func measureCost(read func(), enough uint64) Cost {
	measuring.Lock()
	defer measuring.Unlock()
	allocated := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := allocated()
	cpu, began := cpuTime(), time.Now()
	read()
	c := Cost{Time: time.Since(began), Memory: allocated() - before}
	if used := cpuTime() - cpu; cpu > 0 {
		c.Time = min(c.Time, used)
	}
	if c.Memory > enough { // allocations are an upper bound of live memory, so only a large figure needs the exact measurement
		c.Memory = min(c.Memory, measurePeak(read))
	}
	return c
}

// measurePeak returns the peak of live memory while read runs. It collects garbage continuously and reads the live
// heap after each collection. Other memory in use is garbage, which varies on a busy machine.
func measurePeak(read func()) uint64 {
	live := func() uint64 {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := live()
	most := before
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true // measure once more for memory held at the end
			default:
			}
			most = max(most, live())
		}
	}()
	read()
	close(done)
	<-stopped
	return most - before
}

// Repeat returns a text of about size bytes: head, unit as often as it fits, and tail. If the cost grows faster than
// the length, repetition reveals it. So a fuzzer that chooses the three parts finds such faults with short inputs.
func Repeat(head, unit, tail []byte, size int) []byte {
	n := 0
	if len(unit) > 0 {
		n = max(size-len(head)-len(tail), 0) / len(unit)
	}
	return bytes.Join([][]byte{head, bytes.Repeat(unit, n), tail}, nil)
}
