package sqlite_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// contender is a way to write, with its own file.
type contender struct {
	name   string
	store  *sqlite.Store // reads, and also writes unless commit differs
	commit func(context.Context, store.Commit) error
}

// load describes the load on the contenders.
type load struct {
	writers   int
	context   int // bytes
	instances int // per writer
	windows   int
	window    time.Duration
}

const kilobyte = 1 << 10

func document(bytes int) string {
	return `{"title":"` + strings.Repeat("x", bytes*2/5) + `","body":"` + strings.Repeat("y", bytes*3/5) + `","n":0}`
}

// opener creates a contender; all start with the same instances.
type opener func(tb testing.TB, path string, l load) contender

// grouped is the store as released.
func grouped(tb testing.TB, path string, _ load) contender {
	tb.Helper()
	s, err := sqlite.Open(tb.Context(), sqlite.Config{Path: path}) // with all background work
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return contender{"grouped", s, s.Commit}
}

// scanAll commits in groups and checkpoints the log in the background after this many pages.
func scanAll(pages int) opener {
	return func(tb testing.TB, path string, _ load) contender {
		tb.Helper()
		return checkpointed(tb, path, fmt.Sprint("background ", pages), pages, 0)
	}
}

// auto commits in groups; the commit that brings the log to this length checkpoints it.
func auto(pages int) opener {
	return func(tb testing.TB, path string, _ load) contender {
		tb.Helper()
		return checkpointed(tb, path, fmt.Sprint("in the commit ", pages), 0, pages)
	}
}

func checkpointed(tb testing.TB, path, name string, background, inCommit int) contender {
	tb.Helper()
	s, err := sqlite.OpenCheckpointing(tb.Context(), sqlite.Config{Path: path}, background, inCommit)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return contender{name, s, s.Commit}
}

// naive is the baseline: one transaction per write.
func naive(tb testing.TB, path string, l load) contender {
	tb.Helper()
	c := grouped(tb, path, l)
	n, err := sqlite.NewNaive(tb.Context(), path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Close() })
	return contender{"naive", c.store, n.Commit}
}

// seed creates the instances of every writer.
func (c contender) seed(tb testing.TB, l load) {
	tb.Helper()
	doc := document(l.context)
	var wg sync.WaitGroup
	for w := range l.writers {
		wg.Go(func() {
			for n := range l.instances {
				if err := c.store.Commit(tb.Context(), storetest.Start(tb, storetest.ID(w*l.instances+n), doc)); err != nil {
					tb.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// advance loads an instance and commits an event of about 600 bytes.
func (c contender) advance(tb testing.TB, l load) func(w, i int) {
	return func(w, i int) {
		c.advancing(tb, func(i int) string { return storetest.ID(w*l.instances + i%l.instances) })(w, i)
	}
}

// advancing advances the instance that id returns for each iteration.
func (c contender) advancing(tb testing.TB, id func(i int) string) func(w, i int) {
	return func(_, i int) {
		inst, err := c.store.Load(context.Background(), id(i))
		if err == nil {
			err = c.commit(context.Background(), benchAdvance(tb, inst, i))
		}
		if err != nil {
			tb.Error(err)
		}
	}
}

func benchAdvance(tb testing.TB, inst record.Instance, i int) store.Commit {
	tb.Helper()
	return storetest.Advance(tb, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, i))
}

// figures holds the measurements of a contender.
type figures struct {
	rate  float64 // per second
	disk  float64 // rate divided by the disk's fdatasync rate before and after; the median of the windows
	took  []time.Duration
	ratio []float64
	rates []float64 // of each window
	p99s  []float64 // of each window, ms
	// p50s holds the p50 of each window, divided by that of fdatasync before and after it.
	p50s []float64
}

// contest runs the contenders in turns, window after window, and probes the disk before and after each. On a shared
// machine, only ratios of adjacent measurements are meaningful.
func contest(tb testing.TB, l load, openers ...opener) (map[string]*figures, *figures) {
	tb.Helper()
	all, disk, probe := map[string]*figures{}, &figures{}, newProbe(tb)
	contenders := make([]contender, len(openers))
	for i, open := range openers {
		contenders[i] = open(tb, filepath.Join(tb.TempDir(), "gavel.db"), l)
		contenders[i].seed(tb, l)
		all[contenders[i].name] = &figures{}
	}
	look := func() (rate, p50 float64) {
		var f figures
		rate = f.during(250*time.Millisecond, 1, probe.sync)
		disk.rate, disk.took = disk.rate+rate, append(disk.took, f.took...)
		return rate, f.micros(50)
	}
	rateBefore, p50Before := look()
	for range l.windows {
		for _, c := range contenders {
			var window figures
			rate := window.during(l.window, l.writers, c.advance(tb, l))
			rateAfter, p50After := look()
			f := all[c.name]
			f.rate, f.took = f.rate+rate, append(f.took, window.took...)
			f.rates = append(f.rates, rate)
			f.p99s = append(f.p99s, window.micros(99)/1e3)
			f.ratio = append(f.ratio, rate/((rateBefore+rateAfter)/2))
			f.p50s = append(f.p50s, window.micros(50)/((p50Before+p50After)/2))
			rateBefore, p50Before = rateAfter, p50After
		}
	}
	for _, f := range all {
		f.rate /= float64(l.windows)
		f.disk = median(f.ratio)
	}
	disk.rate /= float64(1 + l.windows*len(contenders))
	return all, disk
}

// during measures one window, adds it to the figures and returns its rate.
func (f *figures) during(window time.Duration, workers int, do func(w, i int)) float64 {
	start := time.Now()
	took := during(window, workers, do)
	rate := float64(len(took)) / time.Since(start).Seconds()
	f.took = append(f.took, took...)
	f.rate += rate
	return rate
}

// p99 is the median of the windows in ms, so that a single slow moment of a shared machine does not count.
func (f *figures) p99() float64 { return median(f.p99s) }

// over is the median of the rates, each divided by that of the other contender's preceding window.
func (f *figures) over(other *figures) float64 {
	all := make([]float64, len(f.rates))
	for i := range all {
		all[i] = f.rates[i] / other.rates[i]
	}
	return median(all)
}

func (f *figures) micros(percentile int) float64 { return micros(f.took, percentile) }

func median[T cmp.Ordered](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// during lets workers call do repeatedly for a duration, and returns how long each call took.
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

// probe writes 4 KiB into a preallocated file and syncs it.
type probe struct {
	tb   testing.TB
	file *os.File
	page []byte
}

const probePages = 2048

func newProbe(tb testing.TB) *probe {
	tb.Helper()
	f, err := os.Create(filepath.Join(tb.TempDir(), "probe"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	p := &probe{tb, f, make([]byte, 4096)}
	for i := range probePages {
		if _, err := f.WriteAt(p.page, int64(i)*4096); err != nil {
			tb.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		tb.Fatal(err)
	}
	return p
}

func (p *probe) sync(_, i int) {
	p.page[0]++
	if _, err := p.file.WriteAt(p.page, int64(i%probePages)*4096); err != nil {
		p.tb.Error(err)
	}
	if err := fdatasync(p.file); err != nil {
		p.tb.Error(err)
	}
}

// BenchmarkAdvance measures a durable advance by a single writer. `make bench-store` prints the table with the
// baselines.
func BenchmarkAdvance(b *testing.B) {
	l := load{writers: 1, context: kilobyte, instances: 8}
	c := grouped(b, filepath.Join(b.TempDir(), "gavel.db"), l)
	c.seed(b, l)
	advance, i := c.advance(b, l), 0
	b.ReportAllocs()
	for b.Loop() {
		advance(0, i)
		i++
	}
}

// BenchmarkLoad measures concurrent reads of an instance.
func BenchmarkLoad(b *testing.B) {
	s := openAt(b, filepath.Join(b.TempDir(), "gavel.db"))
	defer s.Close()
	if err := s.Commit(b.Context(), storetest.Start(b, storetest.ID(1), document(kilobyte))); err != nil {
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
