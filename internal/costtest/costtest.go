// Package costtest measures what reading a text costs, for tests that bound it.
// It promises a figure that a busy machine does not blow up: processor time where
// the system tells it, and the memory in use, not what was allocated and freed.
package costtest

import (
	"bytes"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// What one text may cost: so much for each unit of its length, and never less
// than a quarter of that.
const (
	unit   = 64 << 10
	Time   = 2 * time.Second // for each unit
	Memory = 64 << 20        // bytes in use at once, for each unit
	rounds = 10              // until one is below both
)

// T is the part of testing.TB that is needed.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Cost is what a call took.
type Cost struct {
	Time   time.Duration
	Memory uint64 // the most that was in use at once, beyond what was before
}

// Bound fails the test when read costs more than a text of size bytes may. A
// round beyond it is repeated: noise of the machine only adds.
func Bound(t T, size int, read func()) {
	t.Helper()
	share := max(float64(size)/unit, 0.25)
	mostTime, mostMemory := time.Duration(share*float64(Time)), uint64(share*float64(Memory))
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

var one sync.Mutex // measures one at a time: both figures are of the process

// measureCost measures once; memory of up to enough bytes may be what was allocated.
func measureCost(read func(), enough uint64) Cost {
	one.Lock()
	defer one.Unlock()
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
	if c.Memory > enough { // what was allocated bounds what is in use; only a large figure is looked into
		c.Memory = min(c.Memory, measurePeak(read))
	}
	return c
}

// measurePeak is the most memory that is live while read runs. It collects as often as it
// can, and asks for what the collections found: what is in use besides is garbage, of
// which a busy machine has any amount.
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
				ended = true // and what is held at the end is looked at once more
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

// Repeat makes a text of about size bytes: head, then unit as often as it fits,
// then tail. A fault whose cost grows faster than the length shows in any of its
// repetitions, so a fuzzer that chooses the three finds it with short inputs.
func Repeat(head, unit, tail []byte, size int) []byte {
	n := 0
	if len(unit) > 0 {
		n = max(size-len(head)-len(tail), 0) / len(unit)
	}
	return bytes.Join([][]byte{head, bytes.Repeat(unit, n), tail}, nil)
}
