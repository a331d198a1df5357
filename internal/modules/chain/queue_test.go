package chain

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// blockedServers answers once released, and counts the calls in progress.
type blockedServers struct {
	under, most atomic.Int32
	release     chan struct{}
}

func (b *blockedServers) Do(_ context.Context, c Command) Outcome {
	if c.Name == "free" {
		return Outcome{}
	}
	n := b.under.Add(1)
	for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); most = b.most.Load() {
	}
	<-b.release
	b.under.Add(-1)
	return Outcome{}
}

// awaitUnder waits until want calls are in progress.
func (b *blockedServers) awaitUnder(t *testing.T, want int32) {
	t.Helper()
	await(t, "calls under way", func() (int32, bool) { n := b.under.Load(); return n, n == want })
}

func countStatus(t *testing.T, r *Runs, want RunStatus) (n int) {
	t.Helper()
	list, err := r.List(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Status == want {
			n++
		}
	}
	return n
}

// awaitLook returns once the process has read the limits of all queues and polled them since the call: runs
// of a chain with a new queue have ended by then.
func awaitLook(t *testing.T, r *Runs) {
	t.Helper()
	d, err := Parse("chain.yaml", []byte("name: "+newRunID()+"\nconcurrency: 2\nsteps: [{id: x, type: tool, server: s, action: free}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if result := waitRun(t, r, startRun(t, r, d, "")); result.Err != nil {
			t.Fatal(result.Err)
		}
	}
}

func bounded(t *testing.T, bound string) *Definition {
	t.Helper()
	key := "concurrency: " + bound + "\n"
	if bound == "" {
		key = ""
	}
	return parse(t, key+steps(`{id: x, type: tool, server: s, action: bound}`))
}

// TestConcurrency: each chain's runs are limited separately.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	b := &blockedServers{release: make(chan struct{})}
	r := openRuns(t, t.TempDir(), b)
	defer r.Close()
	d := bounded(t, "2")
	var runs []string
	for range 5 {
		runs = append(runs, startRun(t, r, d, ""))
	}
	b.awaitUnder(t, 2)
	awaitLook(t, r)
	if n := countStatus(t, r, StatusQueued); n != 3 || b.most.Load() != 2 {
		t.Errorf("%d are queued and at most %d were under way, want 3 and 2", n, b.most.Load())
	}
	close(b.release)
	for _, run := range runs {
		if result := waitRun(t, r, run); result.Err != nil {
			t.Error(result.Err)
		}
	}
	if b.most.Load() != 2 {
		t.Errorf("at most %d were under way", b.most.Load())
	}
}

// TestPrincipalsTakeTurns: many queued runs of one principal do not delay those of another.
func TestPrincipalsTakeTurns(t *testing.T) {
	ctx := context.Background()
	const many = 8
	release, began := make(chan struct{}), make(chan string, many+2)
	r := openRuns(t, t.TempDir(), effectsFunc(func(_ context.Context, c Command) Outcome {
		began <- c.Principal.ID
		<-release
		return Outcome{}
	}))
	defer r.Close()
	d := parse(t, "concurrency: 1\n"+steps(`{id: x, type: tool, server: s, action: x}`))
	start := func(p engine.Principal) string {
		t.Helper()
		run, err := r.Start(ctx, StartRequest{Definition: d, Principal: p})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	start(agentA)
	<-began
	last := ""
	for range many {
		last = start(agentA)
	}
	start(agentB)
	start(agentB)
	close(release)
	waitRun(t, r, last)
	close(began)
	var order []string
	for who := range began {
		order = append(order, who)
	}
	if len(order) != many+2 || strings.Join(order[:4], " ") != "a b a b" || slices.Contains(order[4:], "b") {
		t.Errorf("they begin as %q", order)
	}
}

// TestBoundChanges: a raised or lowered limit applies to waiting and executing runs together. If the limit
// is removed, no run is held up.
func TestBoundChanges(t *testing.T) {
	t.Parallel()
	b := &blockedServers{release: make(chan struct{})}
	r := openRuns(t, t.TempDir(), b)
	defer r.Close()
	for range 6 {
		startRun(t, r, bounded(t, "2"), "")
	}
	b.awaitUnder(t, 2)
	startRun(t, r, bounded(t, "3"), "") // the seventh run
	b.awaitUnder(t, 3)
	awaitLook(t, r)
	if n := countStatus(t, r, StatusQueued); n != 4 || b.most.Load() != 3 {
		t.Errorf("raised to 3: %d are queued, and at most %d were under way", n, b.most.Load())
	}
	set := func(bound string) {
		t.Helper()
		if err := r.SetLimits(t.Context(), map[string]*Definition{"c": bounded(t, bound)}); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	awaitLook(t, r)
	b.release <- struct{}{}
	b.release <- struct{}{}
	awaitLook(t, r)
	if n := countStatus(t, r, StatusQueued); n != 4 || b.under.Load() != 1 {
		t.Errorf("lowered to 1: %d are queued, and %d are under way", n, b.under.Load())
	}
	set("")
	b.awaitUnder(t, 5)
	close(b.release)
	await(t, "the end of all runs", func() (int, bool) { n := countStatus(t, r, StatusRunning); return n, n == 0 })
	last := startRun(t, r, bounded(t, "2"), "") // started by a process with another definition
	if result := waitRun(t, r, last); result.Err != nil {
		t.Error(result.Err)
	}
}

// TestPausedRunKeepsItsPlace: a paused run still counts toward the limit.
func TestPausedRunKeepsItsPlace(t *testing.T) {
	t.Parallel()
	b := &blockedServers{release: make(chan struct{})}
	r := openRuns(t, t.TempDir(), b)
	defer r.Close()
	d := parse(t, "concurrency: 1\n"+steps(`{id: x, type: tool, server: s, action: bound}`, `{id: y, type: tool, server: s, action: free}`))
	first := startRun(t, r, d, "")
	b.awaitUnder(t, 1)
	second := startRun(t, r, d, "")
	if err := r.Pause(t.Context(), first, "ann", ""); err != nil {
		t.Fatal(err)
	}
	b.release <- struct{}{}
	awaitLook(t, r)
	if s, err := r.Get(t.Context(), second); err != nil || s.Status != StatusQueued || b.under.Load() != 0 {
		t.Errorf("next to the paused one the other is %+v, %v", s, err)
	}
	if err := r.Resume(t.Context(), first, "ann", ""); err != nil {
		t.Fatal(err)
	}
	close(b.release)
	for _, run := range []string{first, second} {
		if result := waitRun(t, r, run); result.Err != nil {
			t.Error(result.Err)
		}
	}
}
