package chain

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestRepeatableIsKept: whether a step is repeatable is decided when a run begins, because its records
// depend on it.
func TestRepeatableIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chains.db")
	var calls atomic.Int32
	effects := effectsFunc(func(context.Context, Command) Outcome {
		calls.Add(1)
		return Outcome{Value: "done"}
	})
	for _, repeatable := range []bool{false, true} {
		r, err := Open(t.Context(), Config{Path: path, Effects: effects, Grace: shortGrace, Repeatable: func(string, string) bool { return repeatable }})
		if err != nil {
			t.Fatal(err)
		}
		if !repeatable {
			_, err = r.Start(t.Context(), StartRequest{Run: "run-1", Principal: operator, Definition: parse(t, steps(
				`{id: a, type: tool, server: s, action: a}`, `{id: w, type: wait, signal: go}`, `{id: b, type: tool, server: s, action: b, save_output_to: variables.output.b}`))})
			if err != nil {
				t.Fatal(err)
			}
			await(t, "the wait", func() ([]RunQuestion, bool) {
				q, err := r.questions(t.Context(), "run-1")
				return q["run-1"], err == nil && len(q["run-1"]) == 1
			})
			r.Close()
			continue
		}
		defer r.Close()
		if err := r.Signal(t.Context(), "run-1", "go", "ann", nil); err != nil {
			t.Fatal(err)
		}
		if result := waitRun(t, r, "run-1"); result.Err != nil || marshal(result.Output) != `{"b":"done"}` || calls.Load() != 2 {
			t.Errorf("it ends with %s, %v after %d calls", marshal(result.Output), result.Err, calls.Load())
		}
	}
}

// TestTroubleIsNotTheEnd: if the database rejects a record, the run continues once the database accepts
// records again.
func TestTroubleIsNotTheEnd(t *testing.T) {
	ctx := context.Background()
	var calls atomic.Int32
	r := openRuns(t, t.TempDir(), effectsFunc(func(context.Context, Command) Outcome {
		calls.Add(1)
		return Outcome{Value: "done"}
	}))
	defer r.Close()
	r.stop() // the test calls requeueStrays itself
	r.stopped.Wait()
	s := r.session.Load()
	if _, err := s.file.ExecContext(ctx, `CREATE TRIGGER full BEFORE INSERT ON operation_outputs BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`); err != nil {
		t.Fatal(err)
	}
	run := startRun(t, r, parse(t, steps(`{id: a, type: resource, server: s, uri: "file:///a", save_output_to: variables.output.a}`)), "")
	await(t, "the trouble", func() (bool, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return false, r.failures[run] == 1 && r.control[run] == nil
	})
	if got, err := r.Get(ctx, run); err != nil || got.Status != StatusRunning {
		t.Fatalf("the run is %+v, %v", got, err)
	}
	if _, err := s.file.ExecContext(ctx, `DROP TRIGGER full`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.requeueStrays(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if result := waitRun(t, r, run); result.Err != nil || marshal(result.Output) != `{"a":"done"}` || calls.Load() != 2 {
		t.Errorf("it ends with %s, %v after %d calls", marshal(result.Output), result.Err, calls.Load())
	}
}

// TestCancelledWaits: a cancelled run stops waiting, and sends nothing afterwards.
func TestCancelledWaits(t *testing.T) {
	ended := make(chan Outcome, 1)
	r := openRuns(t, t.TempDir(), effectsFunc(func(ctx context.Context, _ Command) Outcome {
		o := Executor{}.await(ctx, &Command{}, func() (bool, error) { return false, nil }) // as for a parked call
		ended <- o
		return o
	}))
	defer r.Close()
	run := startRun(t, r, parse(t, steps(`{id: p, type: parallel, tasks: [{id: a, type: tool, server: s, action: a}, {id: w, type: wait, signal: go}]}`)), "")
	await(t, "the wait", func() ([]RunQuestion, bool) {
		q, err := r.questions(t.Context(), run)
		return q[run], err == nil && len(q[run]) == 1
	})
	if err := r.Cancel(t.Context(), run, "ann", "enough"); err != nil {
		t.Fatal(err)
	}
	if o := <-ended; o.Err == nil {
		t.Error("the parked call went on")
	}
	await(t, "the end of the wait", func() (int, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.awaited), len(r.awaited) == 0
	})
}

// TestSavedSecretsAreMasked: a value that a sensitive step saved stays sensitive in the next run.
func TestSavedSecretsAreMasked(t *testing.T) {
	d := parse(t, "sensitive: [/steps/b/output]\n"+steps(`{id: b, type: tool, server: s, action: b, save_output_to: saved.last}`, `{id: c, type: tool, server: s, action: c, save_output_to: saved.open}`))
	w, err := d.Workflow()
	if err != nil {
		t.Fatal(err)
	}
	l := &runRecord{definition: w, scrub: func(text string) string { return text }}
	l.learnSaved(d, map[string]any{"last": "first-secret-1", "open": "anybody may see it"})
	if got := l.scrub("it says first-secret-1, and anybody may see it"); strings.Contains(got, "first-secret-1") || !strings.Contains(got, "anybody may see it") {
		t.Errorf("it says %q", got)
	}
}

// TestFileOfRunsIsPrivate: only its owner can read the file of the runs; a file whose opening failed is
// removed.
func TestFileOfRunsIsPrivate(t *testing.T) {
	folder := t.TempDir()
	openRuns(t, folder, &fakeServers{}).Close()
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
}
