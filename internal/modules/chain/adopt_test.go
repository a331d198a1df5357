package chain

import (
	"context"
	"strings"
	"testing"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// TestTakenUpTooOften: a run whose process dies repeatedly is paused, until a person resumes it.
func TestTakenUpTooOften(t *testing.T) {
	ctx := context.Background()
	begun, release := make(chan struct{}), make(chan struct{})
	r := openRuns(t, t.TempDir(), effectsFunc(func(_ context.Context, c Command) Outcome {
		if c.Name == "deadly" {
			close(begun)
			<-release
		}
		return Outcome{Value: c.Name}
	}))
	defer r.Close()
	run := startRun(t, r, parse(t, "concurrency: 1\n"+steps(`{id: d, type: wait, signal: go}`, `{id: x, type: tool, server: s, action: deadly, save_output_to: variables.output.x}`, `{id: e, type: wait, signal: end}`)), "")
	waits := func() ([]RunQuestion, bool) {
		q, err := r.questions(ctx, run)
		return q[run], err == nil && len(q[run]) == 1
	}
	await(t, "the question", waits)
	r.stop() // a dead process writes nothing
	r.stopped.Wait()
	// Other processes count the deaths on boards that the dead process no longer writes. Here the boards
	// are published before and after that, but not in between.
	publish := func() {
		t.Helper()
		if err := r.publish(ctx); err != nil {
			t.Fatal(err)
		}
	}
	publish()
	rowOf := func() dbos.WorkflowStatus {
		t.Helper()
		list, err := r.listRows(ctx, dbos.WithFilterWorkflowIDs(run))
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0]
	}
	boardOf := func() liveState { return readLiveState(rowOf()) }
	calls := false // whether each process that takes up the run begins its call
	takeUp := func(times int) RunState {
		t.Helper()
		for range times {
			if b := boardOf(); calls && !b.Tried {
				b.Tried = true
				if err := r.mark(ctx, run, map[string]any{attrState: b}); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.countCrashes(ctx, []dbos.WorkflowStatus{rowOf()}); err != nil {
				t.Fatal(err)
			}
		}
		status, err := r.Get(ctx, run)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	if s := takeUp(2 * maxCrashes); s.Status != StatusRunning { // a waiting run is not blamed for the deaths
		t.Fatalf("taken up while it waits it is %+v", s)
	}
	if err := r.Signal(ctx, run, "go", "ann", nil); err != nil {
		t.Fatal(err)
	}
	<-begun
	if !boardOf().Tried {
		t.Error("it does not say that its call began")
	}
	calls = true
	if s := takeUp(maxCrashes); s.Status != StatusRunning {
		t.Fatalf("taken up %d times in a call it is %+v", maxCrashes, s)
	}
	s := takeUp(1)
	if s.Status != StatusPaused || s.Note.By != "gavel" || !strings.Contains(s.Note.Why, "20 times in a row before any step of the run did") {
		t.Errorf("taken up once more it is %+v", s)
	}
	if err := r.Resume(ctx, run, "ann", "the server has more memory"); err != nil {
		t.Fatal(err)
	}
	if s := takeUp(maxCrashes); s.Status != StatusRunning {
		t.Errorf("resumed and taken up it is %+v", s)
	}
	close(release)
	await(t, "the count to begin anew", func() (liveState, bool) {
		publish()
		b := boardOf()
		return b, !b.Tried && b.Crashes == 0
	})
	if err := r.Signal(ctx, run, "end", "ann", nil); err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, run); marshal(result.Output) != `{"x":"deadly"}` {
		t.Errorf("it ends with %s", marshal(result.Output))
	}
}

// TestReclaim: a run that the tables assign to this process, but that does not execute here, continues in a
// new execution. The remains of the old execution record nothing.
func TestReclaim(t *testing.T) {
	ctx := context.Background()
	f := &fakeServers{}
	r := openRuns(t, t.TempDir(), f)
	defer r.Close()
	run := startRun(t, r, parse(t, steps(`{id: a, type: tool, server: s, action: a}`, `{id: w, type: wait, signal: go, save_output_to: variables.output.w}`)), "")
	await(t, "the question", func() ([]RunQuestion, bool) {
		q, err := r.questions(ctx, run)
		return q[run], err == nil && len(q[run]) == 1
	})
	r.stop()
	r.stopped.Wait()
	r.mu.Lock()
	delete(r.control, run) // simulates an execution that has ended
	r.mu.Unlock()
	s := r.session.Load()
	for range 2 {
		if err := r.requeueStrays(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Signal(ctx, run, "go", "ann", "said"); err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, run); marshal(result.Output) != `{"w":"said"}` || len(f.calls) != 1 {
		t.Errorf("it ends with %s, %v after the calls %v", marshal(result.Output), result.Err, f.calls)
	}
}
