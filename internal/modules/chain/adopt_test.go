package chain

import (
	"context"
	"strings"
	"testing"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// TestTakenUpTooOften: a run whose process ends again and again is paused, and a person lets it go on.
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
	r.stop() // a process that has ended writes nothing meanwhile
	r.stopped.Wait()
	// The ends of processes are counted by others, over boards that the process which ended no longer writes: here they
	// are published before and after, but not meanwhile.
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
	boardOf := func() board { return readBoard(rowOf()) }
	calls := false // each process that takes the run up begins its call
	takeUp := func(times int) RunState {
		t.Helper()
		for range times {
			if b := boardOf(); calls && !b.Tried {
				b.Tried = true
				if err := r.mark(ctx, run, map[string]any{attrBoard: b}); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.countAll(ctx, []dbos.WorkflowStatus{rowOf()}); err != nil {
				t.Fatal(err)
			}
		}
		status, err := r.Get(ctx, run)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	if s := takeUp(2 * maxTakenUp); s.Status != StatusRunning { // it only waits: others end the process
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
	if s := takeUp(maxTakenUp); s.Status != StatusRunning {
		t.Fatalf("taken up %d times in a call it is %+v", maxTakenUp, s)
	}
	s := takeUp(1)
	if s.Status != StatusPaused || s.Note.By != "gavel" || !strings.Contains(s.Note.Why, "20 times without a step of it ending") {
		t.Errorf("taken up once more it is %+v", s)
	}
	if err := r.Resume(ctx, run, "ann", "the server has more memory"); err != nil {
		t.Fatal(err)
	}
	if s := takeUp(maxTakenUp); s.Status != StatusRunning {
		t.Errorf("resumed and taken up it is %+v", s)
	}
	close(release)
	await(t, "the count to begin anew", func() (board, bool) {
		publish()
		b := boardOf()
		return b, !b.Tried && b.TakenUp == 0
	})
	if err := r.Signal(ctx, run, "end", "ann", nil); err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, run); marshal(result.Output) != `{"x":"deadly"}` {
		t.Errorf("it ends with %s", marshal(result.Output))
	}
}

// TestReclaim: a run that does not execute here, and that by the tables is this process's, goes on in another execution.
// What is left of the one before records nothing.
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
	delete(r.control, run) // as an execution that has ended
	r.mu.Unlock()
	s := r.session.Load()
	for range 2 {
		if err := r.reclaim(ctx, s); err != nil {
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
