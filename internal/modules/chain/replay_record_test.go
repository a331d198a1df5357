package chain_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/judge"
)

// countingLedger collects the keys of records, and is unavailable for one of them.
type countingLedger struct {
	*engine.Recorder
	away string
	gone chan struct{} // closed when that record is first attempted

	mu    sync.Mutex
	keys  []string
	wrote chan string // receives each key; may be nil
}

func (l *countingLedger) RecordStep(ctx context.Context, req engine.StepRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if req.Key == l.away {
		select {
		case <-l.gone:
		default:
			close(l.gone)
		}
		return &engine.Error{Code: engine.CodeUnavailable, Message: "The store is away."}
	}
	l.keys = append(l.keys, req.Key)
	if l.wrote != nil {
		l.wrote <- req.Key
	}
	return l.Recorder.RecordStep(ctx, req)
}

// openReplay opens runs whose calls return their keys, over a countingLedger.
func openReplay(t *testing.T, path string, l *countingLedger) *chain.Runs {
	t.Helper()
	r, err := chain.Open(t.Context(), chain.Config{
		Path: path, Ledger: l, Grace: time.Millisecond,
		Effects: effects(func(c chain.Command) chain.Outcome { return chain.Outcome{Value: c.Key} }),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// TestReplayRecords: what ended before a run was taken up is recorded exactly once. Missing records are
// written, and existing ones are not sent again.
func TestReplayRecords(t *testing.T) {
	t.Parallel()
	path, e := filepath.Join(t.TempDir(), "chains.db"), enginetest.New(t, judge.Config{Clock: enginetest.FixedTime})
	d, err := chain.Parse("chain.yaml", []byte("name: c\nsteps:\n- {id: l, type: loop, max_iterations: 30, steps: [{id: a, type: tool, server: s, action: a}]}\n- {id: z, type: tool, server: s, action: z}\n"))
	if err != nil {
		t.Fatal(err)
	}
	first := &countingLedger{Recorder: chain.NewLedger(e), away: "step l#30/a", gone: make(chan struct{})}
	r := openReplay(t, path, first)
	run, err := r.Start(t.Context(), chain.StartRequest{Definition: d, Principal: ann})
	if err != nil {
		t.Fatal(err)
	}
	<-first.gone // DBOS has the outcome of the 30th iteration; the ledger does not
	r.Close()
	second := &countingLedger{Recorder: chain.NewLedger(e)}
	if result, err := openReplay(t, path, second).Wait(t.Context(), run); err != nil || result.Err != nil {
		t.Fatal(result, err)
	}
	if want := []string{"step l#30/a", "step z", "end"}; !slices.Equal(second.keys, want) {
		t.Errorf("it recorded %q, want %q", second.keys, want)
	}
	all, err := engine.ReadWholeHistory(t.Context(), e, olga, engine.RunInstance(run))
	if steps := len(all); err != nil || steps != 33 { // the beginning, 31 calls and the end
		t.Errorf("the record has %d entries, %v", steps, err)
	}
}

// TestReplayRecordsBeforeItWaits: what ended before a run was taken up is recorded before the run waits for
// something else, which may take days.
func TestReplayRecordsBeforeItWaits(t *testing.T) {
	t.Parallel()
	path, e := filepath.Join(t.TempDir(), "chains.db"), enginetest.New(t, judge.Config{Clock: enginetest.FixedTime})
	d, err := chain.Parse("chain.yaml", []byte("name: c\nsteps:\n- {id: p, type: parallel, tasks: [{id: a, type: tool, server: s, action: a}, {id: w, type: wait, signal: go}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	first := &countingLedger{Recorder: chain.NewLedger(e), away: "step p/a", gone: make(chan struct{})}
	r := openReplay(t, path, first)
	if _, err := r.Start(t.Context(), chain.StartRequest{Definition: d, Principal: ann}); err != nil {
		t.Fatal(err)
	}
	<-first.gone
	r.Close()
	second := &countingLedger{Recorder: chain.NewLedger(e), wrote: make(chan string, 10)}
	openReplay(t, path, second)
	for late := time.After(20 * time.Second); ; {
		select {
		case key := <-second.wrote:
			if key == "step p/a" {
				return
			}
		case <-late:
			t.Fatal("the step is not recorded while the run waits for its signal")
		}
	}
}

// TestRedriveRecords: the record of a redriven run contains what the original run had done.
func TestRedriveRecords(t *testing.T) {
	t.Parallel()
	failed := false
	runs, service, e := openRecorded(t, func(c chain.Command) chain.Outcome {
		if c.Key == "c" && !failed {
			failed = true
			return chain.Outcome{Err: &chain.StepError{Code: chain.CodeToolError, Message: "no"}}
		}
		return chain.Outcome{Value: c.Key}
	}, "name: three\nsteps:\n- {id: a, type: tool, server: s, action: a}\n- {id: b, type: tool, server: s, action: b}\n- {id: c, type: tool, server: s, action: c}\n")
	v := runToEnd(t, service, chain.StartRun{Chain: "three"})
	again, err := runs.Redrive(t.Context(), v.Run, "olga", "")
	if err != nil {
		t.Fatal(err)
	}
	if result, err := runs.Wait(t.Context(), again); err != nil || result.Err != nil {
		t.Fatal(result, err)
	}
	all, err := engine.ReadWholeHistory(t.Context(), e, olga, engine.RunInstance(again))
	if steps := len(all); err != nil || steps != 5 { // the beginning, three calls and the end
		t.Errorf("the record has %d entries, %v", steps, err)
	}
}

// BenchmarkChainRestartRecorded is BenchmarkChainRestart for a run with a record in a SQLite store.
func BenchmarkChainRestartRecorded(b *testing.B) {
	store, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "gavel.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	e := enginetest.New(b, judge.Config{}, func(c *engine.Config) { c.Store = store })
	const iterations = 10_000
	d, err := chain.Parse("chain.yaml", fmt.Appendf(nil, "name: c\nsteps:\n- {id: l, type: loop, max_iterations: %d, steps: [{id: a, type: tool, server: s, action: a}]}\n- {id: z, type: wait, signal: go}\n- {id: y, type: tool, server: s, action: y}\n", iterations))
	if err != nil {
		b.Fatal(err)
	}
	path, reached := filepath.Join(b.TempDir(), "chains.db"), make(chan struct{}, 1)
	open := func() *chain.Runs {
		r, err := chain.Open(context.Background(), chain.Config{Path: path, Ledger: waitLedger{chain.NewLedger(e), reached}, Effects: effects(func(chain.Command) chain.Outcome { return chain.Outcome{Value: "ok"} })})
		if err != nil {
			b.Fatal(err)
		}
		return r
	}
	r := open()
	if _, err := r.Start(b.Context(), chain.StartRequest{Definition: d, Principal: ann}); err != nil {
		b.Fatal(err)
	}
	<-reached
	r.Close()
	for b.Loop() {
		r := open()
		<-reached
		b.StopTimer()
		r.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms")
	b.ReportMetric(0, "ns/op")
}

// waitLedger signals when a run begins to wait.
type waitLedger struct {
	*engine.Recorder
	reached chan<- struct{}
}

func (l waitLedger) RecordStep(ctx context.Context, req engine.StepRecord) error {
	err := l.Recorder.RecordStep(ctx, req)
	if req.Action == "wait" {
		l.reached <- struct{}{}
	}
	return err
}
