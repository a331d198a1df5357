package chain

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// openUnloading opens the runs of a folder, and suspends waiting runs immediately.
func openUnloading(t testing.TB, folder string, e Effects) *Runs {
	t.Helper()
	r, err := Open(context.Background(), Config{Path: filepath.Join(folder, "chains.db"), Effects: e, Grace: shortGrace, Unload: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// awaitSuspended waits until the tables have want suspended runs, and returns their ids.
func awaitSuspended(t testing.TB, r *Runs, want int) []string {
	t.Helper()
	runs, _ := await(t, "suspended runs", func() (ids []string, ok bool) {
		list, err := r.listSuspended(context.Background())
		for _, w := range list {
			ids = append(ids, w.ID)
		}
		return ids, err == nil && len(list) == want
	})
	return runs
}

// countedServers counts the calls of each step.
type countedServers struct {
	mu    sync.Mutex
	calls map[string]int
}

func (s *countedServers) Do(_ context.Context, c Command) Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]int{}
	}
	s.calls[c.Run+"/"+c.Key]++
	return Outcome{Value: c.Name}
}

func (s *countedServers) expectOnce(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, n := range s.calls {
		if n != 1 {
			t.Errorf("%s was called %d times", key, n)
		}
	}
	if len(s.calls) != want {
		t.Errorf("%d calls were made, want %d", len(s.calls), want)
	}
}

// readMemory returns the number of goroutines and of bytes in use.
func readMemory() (goroutines int, bytes uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc + m.StackInuse
}

const waitsBetweenCalls = `{id: a, type: tool, server: s, action: a}`

// TestWaitingRunsAreUnloaded: a waiting run uses no memory, and continues when its signal arrives or its
// time has come. No step is repeated.
func TestWaitingRunsAreUnloaded(t *testing.T) {
	const runs = 300
	s := &countedServers{}
	r := openUnloading(t, t.TempDir(), s)
	defer r.Close()
	signal := parse(t, steps(waitsBetweenCalls, `{id: w, type: wait, signal: go, save_output_to: variables.output.w}`, `{id: b, type: tool, server: s, action: b}`))
	waitRun(t, r, startRun(t, r, parse(t, steps(waitsBetweenCalls)), "")) // allocates what is needed once
	idle, before := readMemory()
	for range runs {
		startRun(t, r, signal, "")
	}
	ids := awaitSuspended(t, r, runs)
	now, _ := await(t, "the goroutines to end", func() (int, bool) { n := runtime.NumGoroutine(); return n, n < idle+20 })
	_, after := readMemory()
	grown := (int(after) - int(before)) / runs
	t.Logf("%d waiting runs: %d goroutines instead of %d, %d bytes for each", runs, now, idle, grown)
	if grown > 10_000 {
		t.Errorf("a waiting run holds %d bytes", grown)
	}
	if n := countStatus(t, r, StatusRunning); n != 100 { // one page
		t.Errorf("%d of 100 are running", n)
	}
	for _, run := range ids {
		if err := r.Signal(t.Context(), run, "go", "ann", "said"); err != nil {
			t.Fatal(err)
		}
	}
	for _, run := range ids {
		if result := waitRun(t, r, run); result.Err != nil || marshal(result.Output) != `{"w":"said"}` {
			t.Fatalf("%s ends with %s, %v", run, marshal(result.Output), result.Err)
		}
	}
	s.expectOnce(t, 2*runs+1)
}

// TestTimersWake: a run continues when its time has come, even if its process has ended in the meantime.
func TestTimersWake(t *testing.T) {
	s, folder := &countedServers{}, t.TempDir()
	r := openUnloading(t, folder, s)
	timed := parse(t, steps(waitsBetweenCalls, `{id: w, type: wait, seconds: 1}`, `{id: b, type: tool, server: s, action: b}`))
	late := parse(t, steps(`{id: w, type: wait, signal: go, timeout: 1500ms}`))
	first, second := startRun(t, r, timed, ""), startRun(t, r, late, "")
	awaitSuspended(t, r, 2)
	if result := waitRun(t, r, first); result.Err != nil {
		t.Error(result.Err)
	}
	r.Close()
	r = openUnloading(t, folder, s)
	defer r.Close()
	if result := waitRun(t, r, second); result.Err == nil || result.Err.Code != CodeTimeout {
		t.Errorf("the wait ends with %+v", result)
	}
	s.expectOnce(t, 2)
}

// TestSuspendedRunIsOpen: a suspended run is shown as waiting, counts as open, is not swept, and can be
// paused and cancelled.
func TestSuspendedRunIsOpen(t *testing.T) {
	ctx := t.Context()
	r := openUnloading(t, t.TempDir(), &countedServers{})
	defer r.Close()
	d := parse(t, steps(`{id: w, type: wait, signal: go}`, waitsBetweenCalls))
	run, other := startRun(t, r, d, ""), startRun(t, r, d, "")
	awaitSuspended(t, r, 2)
	service := NewService(ServiceConfig{Runs: r, Chains: func() map[string]*Definition { return map[string]*Definition{d.Name: d} }, OpenRuns: func() int { return 2 }})
	list := func(status RunStatus) (out []string) {
		t.Helper()
		page, err := service.ListRuns(ctx, operator, ListRuns{Status: status})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page.Runs {
			out = append(out, v.Run)
		}
		return out
	}
	view, err := service.ReadStatus(ctx, operator, run)
	if err != nil || view.Status != StatusRunning || len(view.Waiting) != 1 || view.Waiting[0].Key != "go" || !view.Ended.IsZero() {
		t.Errorf("it is shown as %+v, %v", view, err)
	}
	if got := list(StatusRunning); len(got) != 2 || len(list(StatusFailed))+len(list(StatusCancelled)) != 0 {
		t.Errorf("%q are running, %q failed, %q were cancelled", got, list(StatusFailed), list(StatusCancelled))
	}
	if err := service.checkOpen(ctx, operator); !isCode(err, "too_many_instances") {
		t.Errorf("the quota says %v", err)
	}
	if n, err := r.Sweep(ctx, time.Now().Add(time.Hour)); n != 0 || err != nil {
		t.Errorf("%d were swept, %v", n, err)
	}
	if err := r.Pause(ctx, other, "ann", ""); err != nil {
		t.Fatal(err)
	}
	if got := list(StatusPaused); !slices.Equal(got, []string{other}) {
		t.Errorf("%q are paused", got)
	}
	if err := r.Cancel(ctx, run, "ann", "enough"); err != nil {
		t.Fatal(err)
	}
	if err := r.wakeDue(ctx, true); err != nil {
		t.Fatal(err)
	}
	if got := list(StatusCancelled); !slices.Equal(got, []string{run}) {
		t.Errorf("%q were cancelled", got)
	}
	if _, err := r.Wait(ctx, run); err == nil {
		t.Error("it went on")
	}
}

// TestCancelOfASuspendedRunSticks: a cancellation takes effect even if it was interrupted between its two
// writes, or if another process wakes the run.
func TestCancelOfASuspendedRunSticks(t *testing.T) {
	s := &countedServers{}
	r := openUnloading(t, t.TempDir(), s)
	defer r.Close()
	run := startRun(t, r, parse(t, steps(`{id: w, type: wait, signal: go}`, waitsBetweenCalls)), "")
	awaitSuspended(t, r, 1)
	if err := r.mark(t.Context(), run, map[string]any{attrCancelled: true, attrNote: RunNote{By: "ann"}}); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Get(t.Context(), run); err != nil || got.Status != StatusCancelled {
		t.Errorf("it is %+v, %v", got, err)
	}
	if err := r.loadSuspended(t.Context()); err != nil { // as after a restart
		t.Fatal(err)
	}
	await(t, "the end in the tables", func() (dbos.WorkflowStatusType, bool) {
		list, err := r.listRows(t.Context(), dbos.WithFilterWorkflowIDs(run))
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0].Status, list[0].Status == dbos.WorkflowStatusCancelled
	})
	s.expectOnce(t, 0)
}

// TestSignalsAtEachSeam: no signal is lost while a run is being suspended, even if the sender dies before
// waking the run.
func TestSignalsAtEachSeam(t *testing.T) {
	s := &countedServers{}
	folder := t.TempDir()
	r := openUnloading(t, folder, s)
	d := parse(t, steps(waitsBetweenCalls, `{id: w, type: wait, signal: go, save_output_to: variables.output.w}`, `{id: b, type: tool, server: s, action: b}`))
	end := func(run string) {
		t.Helper()
		if result := waitRun(t, r, run); result.Err != nil || marshal(result.Output) != `{"w":"said"}` {
			t.Errorf("%s ends with %s, %v", run, marshal(result.Output), result.Err)
		}
	}
	leave := func(run string) { // like a process that is killed before it wakes the run
		t.Helper()
		if err := r.enqueue(t.Context(), queuePlace{queue: queueName}, signalName, run+"/signal/go/1", `"said"`); err != nil {
			t.Fatal(err)
		}
	}
	quiet := startRun(t, r, d, "")
	awaitSuspended(t, r, 1)
	await(t, "the look at its signals", func() (bool, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return true, r.suspended[quiet] != nil && r.suspended[quiet].settled
	})
	leave(quiet)
	if err := r.loadSuspended(t.Context()); err != nil {
		t.Fatal(err)
	}
	end(quiet)
	closed := startRun(t, r, d, "")
	awaitSuspended(t, r, 1)
	r.Close()
	control, err := OpenControl(t.Context(), Config{Path: r.config.Path})
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Signal(t.Context(), closed, "go", "ann", "said"); err != nil {
		t.Fatal(err)
	}
	control.Close()
	r = openUnloading(t, folder, s)
	defer r.Close()
	end(closed)
	var racing []string
	for range 20 {
		racing = append(racing, startRun(t, r, d, ""))
	}
	var sending sync.WaitGroup
	for i, run := range racing {
		sending.Go(func() {
			<-time.After(time.Duration(i) * 2 * time.Millisecond)
			if err := r.Signal(t.Context(), run, "go", "ann", "said"); err != nil {
				t.Error(err)
			}
		})
	}
	sending.Wait()
	for _, run := range racing {
		end(run)
	}
	s.expectOnce(t, 2*22)
}

// TestKilledWhileSuspending: if a process dies between setting the attribute and returning, the run is
// taken up like any other.
func TestKilledWhileSuspending(t *testing.T) {
	s, folder := &countedServers{}, t.TempDir()
	r := openRuns(t, folder, s)
	run := startRun(t, r, parse(t, steps(waitsBetweenCalls, `{id: w, type: wait, signal: go}`)), "")
	await(t, "the question", func() ([]RunQuestion, bool) {
		q, err := r.questions(t.Context(), run)
		return q[run], err == nil && len(q[run]) == 1
	})
	if err := r.mark(t.Context(), run, map[string]any{attrSuspended: true}); err != nil {
		t.Fatal(err)
	}
	r.Close()
	r = openRuns(t, folder, s)
	defer r.Close()
	await(t, "the attribute to go", func() (string, bool) {
		list, err := r.listRows(t.Context(), dbos.WithFilterWorkflowIDs(run))
		return fmt.Sprint(list), err == nil && len(list) == 1 && !isMarked(list[0], attrSuspended)
	})
	if err := r.Signal(t.Context(), run, "go", "ann", nil); err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, run); result.Err != nil {
		t.Error(result.Err)
	}
	s.expectOnce(t, 1)
}

// TestManyWakeOnce: of several concurrent attempts to wake a run, one succeeds, and a late one does not
// change a run that has ended.
func TestManyWakeOnce(t *testing.T) {
	s := &countedServers{}
	r := openUnloading(t, t.TempDir(), s)
	defer r.Close()
	run := startRun(t, r, parse(t, steps(waitsBetweenCalls, `{id: w, type: wait, signal: go}`, `{id: b, type: tool, server: s, action: b}`)), "")
	awaitSuspended(t, r, 1)
	if err := r.Signal(t.Context(), run, "go", "ann", nil); err != nil {
		t.Fatal(err)
	}
	var failed atomic.Int32
	var waking sync.WaitGroup
	for range 10 {
		waking.Go(func() {
			if err := r.wake(t.Context(), run); err != nil {
				failed.Add(1)
			}
		})
	}
	waking.Wait()
	waitRun(t, r, run)
	if err := r.wake(t.Context(), run); err != nil || failed.Load() > 0 {
		t.Errorf("%d failed, the last with %v", failed.Load(), err)
	}
	if result := waitRun(t, r, run); result.Err != nil {
		t.Error(result.Err)
	}
	s.expectOnce(t, 2)
}
