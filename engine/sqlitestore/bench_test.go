//nolint:thelper // what takes a T here is part of the test, not a helper

package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/sqlitestore"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// BenchmarkAdvance measures durable advances (load, seal, commit; 1 KB of context,
// synchronous FULL) beside the disk's own rate of fdatasync and beside one
// transaction per write, in the same run: on a shared machine only the ratios say
// something. One iteration is one window of about a second.
func BenchmarkAdvance(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { benchmarkAdvance(b, writers) })
	}
}

func benchmarkAdvance(b *testing.B, writers int) {
	path := filepath.Join(b.TempDir(), "gavel.db")
	s := openAt(b, path)
	defer s.Close()
	naive, err := sqlitestore.NewNaive(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer naive.Close()
	const perWriter = 8
	doc := `{"title":"` + strings.Repeat("x", 400) + `","body":"` + strings.Repeat("y", 550) + `","n":0}`
	for n := range writers * perWriter {
		if err := s.Commit(b.Context(), storetest.Start(b, storetest.ID(n), doc)); err != nil {
			b.Fatal(err)
		}
	}
	advance := func(commit func(context.Context, engine.Commit) error) func(w, i int) {
		return func(w, i int) {
			inst, err := s.Load(context.Background(), storetest.ID(w*perWriter+i%perWriter))
			if err != nil {
				b.Error(err)
				return
			}
			if err := commit(context.Background(), benchAdvance(b, inst, i)); err != nil {
				b.Error(err)
			}
		}
	}
	disk := newProbe(b)
	var group, single, sync []time.Duration
	var groupRate, singleRate, syncRate float64
	measure := func(all *[]time.Duration, rate *float64, window time.Duration, workers int, do func(w, i int)) {
		took := during(window, workers, do)
		*all = append(*all, took...)
		*rate += float64(len(took)) / window.Seconds()
	}
	b.ResetTimer()
	for range b.N {
		measure(&sync, &syncRate, 300*time.Millisecond, 1, disk.sync)
		measure(&single, &singleRate, 500*time.Millisecond, writers, advance(naive.Commit))
		measure(&group, &groupRate, 500*time.Millisecond, writers, advance(s.Commit))
		measure(&sync, &syncRate, 300*time.Millisecond, 1, disk.sync)
		measure(&group, &groupRate, 500*time.Millisecond, writers, advance(s.Commit))
	}
	b.StopTimer()
	windows := float64(b.N)
	groupRate, singleRate, syncRate = groupRate/2/windows, singleRate/windows, syncRate/2/windows
	b.ReportMetric(0, "ns/op") // a window, says nothing
	b.ReportMetric(groupRate, "adv/s")
	b.ReportMetric(syncRate, "fdatasync/s")
	b.ReportMetric(groupRate/syncRate, "x-fdatasync")
	b.ReportMetric(groupRate/singleRate, "x-naive")
	b.ReportMetric(micros(group, 50), "p50-µs")
	b.ReportMetric(micros(group, 99), "p99-µs")
	b.ReportMetric(micros(single, 99), "naive-p99-µs")
	b.ReportMetric(micros(group, 50)/micros(sync, 50), "p50-x-fdatasync")
}

// benchAdvance is an advance with about 600 bytes of event.
func benchAdvance(b *testing.B, inst record.Instance, i int) engine.Commit {
	return storetest.Advance(b, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, i))
}

// during lets workers call do for a while and returns how long each call took.
func during(window time.Duration, workers int, do func(w, i int)) []time.Duration {
	all := make([][]time.Duration, workers)
	end := time.Now().Add(window)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := 0; ; i++ {
				start := time.Now()
				if start.After(end) {
					return
				}
				do(w, i)
				all[w] = append(all[w], time.Since(start))
			}
		})
	}
	wg.Wait()
	return slices.Concat(all...)
}

func micros(all []time.Duration, percentile int) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return float64(all[min(len(all)-1, len(all)*percentile/100)].Nanoseconds()) / 1e3
}

// probe writes 4 KiB into a file that has its size already, and syncs it.
type probe struct {
	b    *testing.B
	file *os.File
	page []byte
}

const probePages = 2048

func newProbe(b *testing.B) *probe {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "probe"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	p := &probe{b, f, make([]byte, 4096)}
	for i := range probePages {
		if _, err := f.WriteAt(p.page, int64(i)*4096); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *probe) sync(_, i int) {
	p.page[0]++
	if _, err := p.file.WriteAt(p.page, int64(i%probePages)*4096); err != nil {
		p.b.Error(err)
	}
	if err := fdatasync(p.file); err != nil {
		p.b.Error(err)
	}
}

// BenchmarkLoad measures reads of an instance beside each other.
func BenchmarkLoad(b *testing.B) {
	s := openAt(b, filepath.Join(b.TempDir(), "gavel.db"))
	defer s.Close()
	if err := s.Commit(b.Context(), storetest.Start(b, storetest.ID(1), `{"title":"`+strings.Repeat("x", 1000)+`"}`)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.Load(context.Background(), storetest.ID(1)); err != nil {
				b.Error(err)
			}
		}
	})
}
