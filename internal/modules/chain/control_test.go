package chain

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// openControl opens the file of r as a second process that executes nothing.
func openControl(t testing.TB, r *Runs) *Runs {
	t.Helper()
	c, err := OpenControl(context.Background(), Config{Path: r.config.Path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// awaitStatus waits until a run has the wanted status.
func awaitStatus(t testing.TB, r *Runs, run string, want RunStatus) RunState {
	t.Helper()
	s, _ := await(t, "the run "+run+" to be "+string(want), func() (RunState, bool) {
		s, err := r.Get(context.Background(), run)
		return s, err == nil && s.Status == want
	})
	return s
}

// await polls until look succeeds.
func await[T any](t testing.TB, what string, look func() (T, bool)) (T, time.Duration) {
	t.Helper()
	begun := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		value, there := look()
		if there {
			return value, time.Since(begun)
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("waited in vain for %s; it is %+v", what, value)
		}
	}
	panic("unreachable")
}

// TestControl starts and controls a run through a process that executes nothing.
func TestControl(t *testing.T) {
	ctx := context.Background()
	var calls atomic.Int32
	r := openRuns(t, t.TempDir(), effectsFunc(func(context.Context, Command) Outcome {
		calls.Add(1)
		return Outcome{Value: "ok"}
	}))
	defer r.Close()
	c := openControl(t, r)
	d := parse(t, steps(`{id: w, type: wait, signal: go, save_output_to: variables.output.w}`, `{id: x, type: tool, server: s, action: x}`, `{id: v, type: wait, signal: more}`))
	run := startRun(t, c, d, "")
	if s, err := c.Get(ctx, run); err != nil || s.Status != StatusQueued && s.Status != StatusRunning {
		t.Errorf("it is %+v, %v", s, err)
	}
	waiting := func(key string) func() ([]RunQuestion, bool) {
		return func() ([]RunQuestion, bool) {
			q, err := c.questions(ctx, run)
			if err != nil {
				t.Fatal(err)
			}
			return q[run], len(q[run]) == 1 && q[run][0].Key == key && q[run][0].Kind == QuestionSignal
		}
	}
	await(t, "the question", waiting("go"))
	if err := c.Pause(ctx, run, "ann", "lunch"); err != nil {
		t.Fatal(err)
	}
	await(t, "the pause to be known", func() (bool, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return false, r.control[run].paused
	})
	if err := c.Signal(ctx, run, "go", "ann", "now"); err != nil {
		t.Fatal(err)
	}
	await(t, "the signal to be there", func() (any, bool) {
		steps, _, err := c.steps(ctx, run, 0)
		return steps, err == nil && len(steps) == 1
	})
	if calls.Load() != 0 {
		t.Error("a step began while the run was paused")
	}
	if err := c.Resume(ctx, run, "ann", ""); err != nil {
		t.Fatal(err)
	}
	_, took := await(t, "the next question", waiting("more"))
	t.Logf("it went on after %v", took)
	if err := c.Cancel(ctx, run, "ann", "enough"); err != nil {
		t.Fatal(err)
	}
	await(t, "the run to stop", func() (bool, bool) { return false, !r.isHere(run) })
	if _, err := c.Wait(ctx, run); err == nil || err.Error() != "the run "+run+" was cancelled by ann: enough" {
		t.Errorf("it ended with %v", err)
	}
}

// TestControlAnswers answers a doubt and redrives a failed run, through a process that executes nothing.
func TestControlAnswers(t *testing.T) {
	ctx := context.Background()
	folder := t.TempDir()
	begun := make(chan struct{}, 1)
	r := openRuns(t, folder, effectsFunc(func(ctx context.Context, _ Command) Outcome {
		begun <- struct{}{}
		<-ctx.Done()
		return Outcome{}
	}))
	d := parse(t, steps(`{id: pay, type: tool, server: s, action: pay, save_output_to: variables.output.pay}`))
	run := startRun(t, r, d, "")
	<-begun
	r.Close()
	r = openRuns(t, folder, &fakeServers{})
	defer r.Close()
	c := openControl(t, r)
	q, _ := await(t, "the doubt", func() ([]RunQuestion, bool) {
		q, err := c.questions(ctx, run)
		return q[run], err == nil && len(q[run]) == 1 && q[run][0].Kind == QuestionStep
	})
	if err := c.Answer(ctx, run, q[0].Key, AnswerGiveUp, nil); err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, c, run); result.Err == nil {
		t.Errorf("given up, it ended with %s", marshal(result.Output))
	}
	again, err := c.Redrive(ctx, run, "ann", "now it works")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Answer(ctx, again, q[0].Key, AnswerAgain, nil); err != nil { // it is still unknown what happened to the call
		t.Fatal(err)
	}
	if result := waitRun(t, c, again); result.Err != nil || marshal(result.Output) != `{"pay":"ok"}` {
		t.Errorf("redriven it ends with %s, %v", marshal(result.Output), result.Err)
	}
}

// TestSignalsOfSimilarRuns: in the pattern that lists signals, _ matches any character, but signals of
// another run must not count.
func TestSignalsOfSimilarRuns(t *testing.T) {
	r := openRuns(t, t.TempDir(), &fakeServers{})
	defer r.Close()
	d := parse(t, steps(`{id: w, type: wait, signal: go, save_output_to: variables.output.w}`))
	for _, run := range []string{"job-1", "job_1"} {
		if _, err := r.Start(t.Context(), StartRequest{Run: run, Definition: d, Principal: operator}); err != nil {
			t.Fatal(err)
		}
		if err := r.Signal(t.Context(), run, "go", "ann", run); err != nil {
			t.Fatal(err)
		}
		if result := waitRun(t, r, run); marshal(result.Output) != `{"w":"`+run+`"}` {
			t.Errorf("%s ends with %s, %v", run, marshal(result.Output), result.Err)
		}
	}
}

// TestRedriveOnce: a failed run can be redriven once; if the new run fails too, that one is redriven. The
// redriven run receives its first signal.
func TestRedriveOnce(t *testing.T) {
	var works atomic.Bool
	r := openRuns(t, t.TempDir(), effectsFunc(func(context.Context, Command) Outcome {
		if works.Load() {
			return Outcome{Value: "ok"}
		}
		return Outcome{Err: &StepError{Code: CodeToolError, Message: "no", Final: true}}
	}))
	defer r.Close()
	const wait = `, type: wait, signal: go, save_output_to: variables.output.last}`
	run := startRun(t, r, parse(t, steps(`{id: w1`+wait, `{id: x, type: tool, server: s, action: x}`, `{id: w2`+wait)), "")
	if err := r.Signal(t.Context(), run, "go", "ann", 1); err != nil {
		t.Fatal(err)
	}
	waitRun(t, r, run)
	failed, err := r.Redrive(t.Context(), run, "ann", "")
	if err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, failed); result.Err == nil {
		t.Fatal("redriven it does not fail")
	}
	works.Store(true)
	if other, err := r.Redrive(t.Context(), run, "ann", ""); err == nil || err.Error() != "the run "+failed+" repeated "+run+" and failed too; redrive the newer run" {
		t.Errorf("redriven once more: %q, %v", other, err)
	}
	ids := make(chan string, 8)
	for range cap(ids) {
		go func() {
			id, err := r.Redrive(t.Context(), failed, "ann", "")
			if err != nil {
				t.Error(err)
			}
			ids <- id
		}()
	}
	again := <-ids
	for range cap(ids) - 1 {
		if other := <-ids; other != again {
			t.Errorf("asked at the same time it is run again as %q and as %q", again, other)
		}
	}
	if other, err := r.Redrive(t.Context(), failed, "ann", ""); err != nil || other != again {
		t.Errorf("asked once more it is run again as %q, %v", other, err)
	}
	if err := r.Signal(t.Context(), again, "go", "ann", 2); err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, again); marshal(result.Output) != `{"last":2}` {
		t.Errorf("it ends with %s, %v", marshal(result.Output), result.Err)
	}
}

// TestSignalsAtOnce sends signals from two processes concurrently: none is lost.
func TestSignalsAtOnce(t *testing.T) {
	r := openRuns(t, t.TempDir(), &fakeServers{})
	defer r.Close()
	d := parse(t, steps(`{id: l, type: forEach, items: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20], steps: [{id: w, type: wait, signal: go}]}`))
	run := startRun(t, r, d, "")
	failed := make(chan error, 20)
	for _, from := range []*Runs{r, openControl(t, r)} {
		go func() {
			for n := range 10 {
				failed <- from.Signal(context.Background(), run, "go", "ann", n)
			}
		}()
	}
	for range 20 {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	waitRun(t, r, run)
	steps, _, err := r.steps(context.Background(), run, 0)
	waits := slices.DeleteFunc(steps, func(s RunStep) bool { return s.Op != string(OpWait) })
	if err != nil || len(waits) != 20 {
		t.Errorf("%d of 20 signals came, %v", len(waits), err)
	}
}

// TestControlWithoutExecutor: a run that is started while nothing executes begins once a process does.
func TestControlWithoutExecutor(t *testing.T) {
	folder := t.TempDir()
	c, err := OpenControl(context.Background(), Config{Path: filepath.Join(folder, "chains.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run := startRun(t, c, parse(t, steps(`{id: x, type: tool, server: s, action: x}`)), "")
	if s, err := c.Get(context.Background(), run); err != nil || s.Status != StatusQueued {
		t.Errorf("it is %+v, %v", s, err)
	}
	if err := c.Pause(context.Background(), run, "ann", ""); err != nil {
		t.Error(err)
	}
	if s, err := c.Get(context.Background(), run); err != nil || s.Status != StatusPaused {
		t.Errorf("it is %+v, %v", s, err)
	}
	if err := c.Resume(context.Background(), run, "ann", ""); err != nil {
		t.Error(err)
	}
	r := openRuns(t, folder, &fakeServers{})
	defer r.Close()
	if result := waitRun(t, c, run); result.Err != nil {
		t.Error(result.Err)
	}
	if err := c.Signal(context.Background(), "none", "go", "ann", nil); !errors.Is(err, ErrUnknownRun) {
		t.Errorf("a signal to no run: %v", err)
	}
	awaitStatus(t, c, run, StatusDone)
}
