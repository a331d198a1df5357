package sqlite_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/gavel-mcp/gavel/engine/storetest"
)

var (
	benchStore       = flag.Bool("store.bench", false, "measure the store beside its baselines (make bench-store)")
	benchCheckpoints = flag.Bool("store.checkpoints", false, "measure when the log is best folded")
)

// target is a row of the table: a figure and its bounds.
type target struct {
	figure       string
	got          float64
	atLeast, aim float64
	less         bool // the bounds are maximums
	unit         string
	wall         string // what keeps the figure from the aim
}

func (g target) reaches(bound float64) bool {
	if g.less {
		return g.got <= bound
	}
	return g.got >= bound
}

// verdict describes which bound was reached.
func (g target) verdict() string {
	switch {
	case g.reaches(g.aim):
		return "aim reached"
	case g.reaches(g.atLeast):
		return "reached; the aim is not: " + g.wall
	}
	return "NOT REACHED: " + g.wall
}

func (g target) String() string {
	sign := "≥"
	if g.less {
		sign = "≤"
	}
	return fmt.Sprintf("%s\t%.4g%s\t%s %g\t%s %g\t%s", g.figure, g.got, g.unit, sign, g.atLeast, sign, g.aim, g.verdict())
}

// TestBenchStore prints the store's figures next to the naive baseline and the disk's own rate, all measured in the
// same run. It fails if a figure misses its required bound.
func TestBenchStore(t *testing.T) {
	if !*benchStore {
		t.Skip("a measurement: make bench-store")
	}
	raw, table := &rows{}, &rows{}
	targets := benchWriters(t, raw)
	targets = append(targets, benchContexts(t, raw), benchReads(t, raw), benchOpen(t, raw))
	raw.print("load", "way", "advances/s", "fdatasync/s", "p50 ms", "p99 ms", "p99 ms, median of windows")
	missed := 0
	for _, g := range targets {
		table.add("%s", g)
		if !g.reaches(g.atLeast) {
			missed++
		}
	}
	table.print("figure", "here", "at least", "aim", "")
	if missed > 0 {
		t.Errorf("%d figures are below what they must reach; a busy machine can be why, see the p99 of the baseline", missed)
	}
}

// TestEveryContenderAdvances checks that the baseline does the same work as the store, so that make bench-store
// remains valid when the statements of a commit change.
func TestEveryContenderAdvances(t *testing.T) {
	l := load{writers: 1, instances: 1, context: 1 << 10}
	for _, open := range []opener{grouped, naive} {
		c := open(t, filepath.Join(t.TempDir(), "store.db"), l)
		c.seed(t, l)
		for i := range 3 {
			c.advance(t, l)(0, i)
		}
		inst, err := c.store.Load(t.Context(), storetest.ID(0))
		if err != nil || inst.Revision != 4 {
			t.Errorf("%s: revision %d (%v), want 4 after a start and three advances", c.name, inst.Revision, err)
		}
	}
}

// rows collects the rows of a table before it is printed.
type rows struct{ lines []string }

func (r *rows) add(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *rows) contest(name string, f, disk *figures, way string) {
	r.add("%s\t%s\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f", name, way, f.rate, disk.rate, f.micros(50)/1e3, f.micros(99)/1e3, f.p99())
}

func (r *rows) print(head ...string) {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, h := range head {
		fmt.Fprint(out, h, "\t")
	}
	fmt.Fprintln(out)
	for _, line := range r.lines {
		fmt.Fprintln(out, line)
	}
	_ = out.Flush()
	fmt.Println()
}

const (
	cpuWall   = "the processors, not the disk: some 70 µs of them per advance"
	batchWall = "half of the writers prepare while the others commit, so a batch has 4"
	oneWall   = "half of it is no disk: the load, the seal, six statements, and nine writes into the log"
)

func benchWriters(t *testing.T, raw *rows) []target {
	t.Helper()
	contestOf := func(writers, windows int) (g, n *figures) {
		l := load{writers: writers, context: kilobyte, instances: 8, windows: windows, window: 1200 * time.Millisecond}
		all, disk := contest(t, l, naive, grouped)
		name := fmt.Sprintf("%d writers, 1 KB", writers)
		raw.contest(name, all["naive"], disk, "naive")
		raw.contest(name, all["grouped"], disk, "grouped")
		return all["grouped"], all["naive"]
	}
	g64, n64 := contestOf(64, 5)
	g8, n8 := contestOf(8, 5)
	g1, _ := contestOf(1, 5)
	return []target{
		{"64 writers: advances/s / fdatasync/s", g64.disk, 1.3, 2, false, "", cpuWall},
		{"64 writers: advances/s / one transaction per write", g64.over(n64), 5, 6, false, "x", cpuWall},
		{"64 writers: p99 / the baseline's", g64.p99() / n64.p99(), 0.25, 0.125, true, "", cpuWall},
		{"8 writers: advances/s / fdatasync/s", g8.disk, 0.85, 1.2, false, "", batchWall},
		{"8 writers: advances/s / one transaction per write", g8.over(n8), 2.5, 3.3, false, "x", batchWall},
		{"1 writer: p50 / p50 of fdatasync", median(g1.p50s), 2.5, 1.4, true, "", oneWall},
	}
}

// benchContexts measures large contexts: 64 KB, of which an advance changes a few bytes. Above that size, the store
// rewrites the context instead of writing the change into the event.
func benchContexts(t *testing.T, raw *rows) target {
	t.Helper()
	l := load{writers: 64, context: 63 * kilobyte, instances: 2, windows: 3, window: 1500 * time.Millisecond}
	all, disk := contest(t, l, naive, grouped)
	raw.contest("64 writers, 64 KB", all["naive"], disk, "naive")
	raw.contest("64 writers, 64 KB", all["grouped"], disk, "grouped")
	const wall = "the bytes: each advance writes its 64 KB twice, into the log and the file"
	return target{"64 writers, 64 KB: advances/s / one transaction per write", all["grouped"].over(all["naive"]), 2.5, 4, false, "x", wall}
}

func benchReads(t *testing.T, raw *rows) target {
	t.Helper()
	c := grouped(t, filepath.Join(t.TempDir(), "gavel.db"), load{})
	l := load{writers: 8, context: kilobyte, instances: 8}
	c.seed(t, l)
	f := &figures{}
	f.during(2*time.Second, l.writers, func(w, i int) {
		if _, err := c.store.Load(context.Background(), storetest.ID(w*l.instances+i%l.instances)); err != nil {
			t.Error(err)
		}
	})
	raw.add("8 readers, 1 KB\tload\t%.0f\t\t%.3f\t%.3f\t%.3f", f.rate, f.micros(50)/1e3, f.micros(99)/1e3, f.micros(99)/1e3)
	const wall = "a load is the whole instance, with its facts and context through database/sql, not a bare position"
	return target{"8 readers: loads/s in thousands", f.rate / 1e3, 20, 100, false, "k", wall}
}

func benchOpen(t *testing.T, raw *rows) target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gavel.db")
	if err := openAt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	f := &figures{}
	for range 40 {
		start := time.Now()
		s := openAt(t, path)
		f.took = append(f.took, time.Since(start))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	raw.add("\topen\t\t\t%.2f\t%.2f\t", f.micros(50)/1e3, f.micros(99)/1e3)
	return target{"open an empty store, p50", f.micros(50) / 1e3, 20, 10, true, " ms", "statements are prepared when it is opened"}
}

// TestBenchCheckpoints compares checkpointing in the commit with checkpointing in the background, for several log
// lengths.
func TestBenchCheckpoints(t *testing.T) {
	if !*benchCheckpoints {
		t.Skip("a measurement: go test -run TestBenchCheckpoints -store.checkpoints -v")
	}
	ways := []opener{auto(4000), scanAll(1000), scanAll(2000), scanAll(4000), scanAll(16000)}
	out := &rows{}
	for _, writers := range []int{8, 64} {
		l := load{writers: writers, context: kilobyte, instances: 32, windows: 7, window: time.Second}
		all, _ := contest(t, l, ways...)
		for _, name := range []string{"in the commit 4000", "background 1000", "background 2000", "background 4000", "background 16000"} {
			f := all[name]
			p99 := f.micros(99) // sorts
			out.add("%d\t%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f", writers, name, f.rate, f.disk, f.micros(50)/1e3, f.p99(), p99/1e3,
				float64(f.took[len(f.took)*999/1000].Microseconds())/1e3)
		}
	}
	out.print("writers", "folded", "advances/s", "/ fdatasync/s", "p50 ms", "p99 ms, median of windows", "p99 ms", "p99.9 ms")
}
