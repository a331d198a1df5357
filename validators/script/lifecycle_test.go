package script_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

// eventually waits for a condition that another process brings about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) { //nolint:forbidigo // nothing tells of it
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestWorkersStartOnUse(t *testing.T) {
	p := newPool(t, script.Config{})
	if s := p.Stats(); s.Starts != 0 || s.Workers != 0 {
		t.Errorf("before use: %+v", s)
	}
	one(t, p, yes, `{}`)
	one(t, p, no, `{}`)
	if s := p.Stats(); s.Starts != 1 || s.Workers != 1 {
		t.Errorf("after two calls in a row: %+v", s)
	}
	warm := newPool(t, script.Config{Warm: true})
	eventually(t, "a warm pool starts a worker", func() bool { return warm.Stats().Workers == 1 })
}

func TestOldWorkerIsReplaced(t *testing.T) {
	p := newPool(t, script.Config{Recycle: 3})
	for range 10 {
		if !one(t, p, yes, `{}`).Valid {
			t.Error("not valid")
		}
	}
	if s := p.Stats(); s.Recycled != 3 || s.Starts != 4 || s.Deaths != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSpareIsKeptAfterDeaths(t *testing.T) {
	p := newPool(t, script.Config{Workers: 1})
	one(t, p, explode, `{}`)
	eventually(t, "a spare", func() bool { return p.Idle() == 1 })
	starts := p.Stats().Starts
	one(t, p, yes, `{}`)
	if s := p.Stats(); s.Starts != starts {
		t.Errorf("the call after a death had to start a worker: %+v", s)
	}
	for range 5 {
		one(t, p, explode, `{}`)
	}
	eventually(t, "no more than one spare", func() bool { n := p.Stats().Workers; return n >= 1 && n <= 2 })
}

// TestAWorkerKilledFromOutside: a worker killed while idle has no effect; one killed while running causes a
// retry.
func TestAWorkerKilledFromOutside(t *testing.T) {
	p := newPool(t, script.Config{Workers: 1, Soft: 2 * time.Second, Hard: 10 * time.Second, Total: 20 * time.Second})
	one(t, p, yes, `{}`)
	for _, pid := range p.WorkerPIDs() {
		kill(pid)
	}
	if got := one(t, p, no, `{}`); got.Code != script.OK || got.Reason != "no" {
		t.Errorf("after a kill while idle: %+v", got)
	}
	trips := p.Stats().Trips
	type answer struct {
		reply script.Reply
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := p.Run(context.Background(), script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Validators: validators("() => { for (let i = 0; i < 2e6; i++); return true }")})
		done <- answer{r, err}
	}()
	eventually(t, "it runs", func() bool { return p.Stats().Trips > trips })
	for _, pid := range p.WorkerPIDs() {
		kill(pid)
	}
	switch got := <-done; {
	case got.err == nil && got.reply.Results[0].Valid:
	case errors.Is(got.err, script.ErrUnavailable): // the spare was killed too, at a bad moment
	default:
		t.Errorf("after a kill during the call: %+v", got)
	}
	if s := p.Stats(); s.Kills != 0 {
		t.Errorf("a kill from outside was charged: %+v", s)
	}
}

// TestKilledAtAnyMoment: whenever a worker is killed, a caller gets the right answer or an error that asks for
// a retry, never a wrong answer.
func TestKilledAtAnyMoment(t *testing.T) {
	p := newPool(t, script.Config{ScriptStrikes: 1 << 20, OwnerStrikes: 1 << 20})
	var right, sorry, wrong atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				r, err := p.Run(context.Background(), script.Batch{
					Caller: strconv.Itoa(g), Owner: script.Owner{ID: strconv.Itoa(g)}, Routes: conditions("data.a", "data.b"), Validators: validators(yes, no, "(d) => ({ valid: true, reason: d.c })"),
					Data: []byte(fmt.Sprintf(`{"a":false,"b":%t,"c":"%d"}`, n%2 == 0, n)),
				})
				switch {
				case err != nil && errors.Is(err, script.ErrUnavailable):
					sorry.Add(1)
				case err == nil && n%2 == 0 && r.Route == 1 && r.RouteFault == nil && r.Results[0].Valid && !r.Results[1].Valid && r.Results[2].Reason == strconv.Itoa(n),
					err == nil && n%2 == 1 && r.Route == -1 && r.RouteFault == nil && len(r.Results) == 0:
					right.Add(1)
				default:
					wrong.Add(1)
					t.Errorf("call %d: %+v, %v", n, r, err)
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	shots, wantShots, wantRight := 0, 40, int64(200)
	if long {
		wantShots, wantRight = 100, 500
	}
	for ctx.Err() == nil && (shots < wantShots || right.Load() < wantRight) {
		time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond) //nolint:forbidigo // a random moment is the point
		if pids := p.WorkerPIDs(); len(pids) > 0 {
			kill(pids[rng.IntN(len(pids))])
			shots++
		}
	}
	cancel()
	wg.Wait()
	t.Logf("%d shots, %d right, %d to be retried", shots, right.Load(), sorry.Load())
	if shots < 20 || right.Load() < 50 {
		t.Error("this showed nothing")
	}
}

func TestTheCallerMayLeave(t *testing.T) {
	p := newPool(t, script.Config{Workers: 1, Soft: time.Second, Hard: 5 * time.Second, Total: 5 * time.Second})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := p.Run(ctx, script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Validators: validators(hang)})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, script.ErrUnavailable) {
		t.Errorf("while it runs: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v to leave", took)
	}
	if _, err := p.Run(ctx, script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Validators: validators(yes)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before it runs: %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	trips := p.Stats().Trips
	busy := make(chan error, 1)
	go func() {
		_, err := p.Run(context.Background(), script.Batch{Caller: "p", Owner: script.Owner{ID: "p"}, Validators: validators("() => { for (let i = 0; i < 3e6; i++); return true }")})
		busy <- err
	}()
	eventually(t, "the worker is taken", func() bool { return p.Stats().Trips > trips })
	waiting := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, script.Batch{Caller: "q", Owner: script.Owner{ID: "q"}, Validators: validators(yes)})
		waiting <- err
	}()
	eventually(t, "a call waits", func() bool { return p.Stats().Waiting == 1 })
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("while it waits: %v", err)
	}
	if err := <-busy; err != nil {
		t.Error(err)
	}
	if got := one(t, p, yes, `{}`); !got.Valid {
		t.Errorf("afterwards: %+v", got)
	}
}

func TestClose(t *testing.T) {
	p := newPool(t, script.Config{Workers: 1, Soft: time.Second, Hard: 5 * time.Second, Total: 5 * time.Second})
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := p.Run(context.Background(), script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Validators: validators(hang)})
			errs <- err
		}()
	}
	eventually(t, "one runs, one waits", func() bool { s := p.Stats(); return s.Trips == 1 && s.Waiting == 1 })
	pids := p.WorkerPIDs()
	began := time.Now()
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("closing took %v", took)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, script.ErrUnavailable) {
			t.Errorf("a call in flight: %v", err)
		}
	}
	if _, err := p.Run(context.Background(), script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Validators: validators(yes)}); !errors.Is(err, script.ErrUnavailable) {
		t.Errorf("a call after close: %v", err)
	}
	for _, pid := range pids {
		if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); runtime.GOOS == "linux" && err == nil {
			t.Errorf("process %d is left behind", pid)
		}
	}
	if s := p.Stats(); s.Workers != 0 {
		t.Errorf("%+v", s)
	}
}

func TestNoWorkerAvailable(t *testing.T) {
	for path, want := range map[string]string{
		"/nonexistent/worker": "no such file",
		"/bin/true":           "must begin with worker.Main(",
		"/bin/cat":            "not a worker",
	} {
		if _, err := os.Stat(path); err != nil && want != "no such file" {
			continue
		}
		p := newPool(t, script.Config{WorkerPath: path})
		_, err := p.Run(context.Background(), script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Validators: validators(yes)})
		if !errors.Is(err, script.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := p.Check(context.Background(), "o", script.Owner{ID: "o"}, validators(yes)); !errors.Is(err, script.ErrUnavailable) {
			t.Errorf("%s, check: %v", path, err)
		}
	}
}

func TestQueueFull(t *testing.T) {
	p := newPool(t, script.Config{Workers: 1, Queue: 2})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for i := range 3 {
		wg.Go(func() {
			_, _ = p.Run(ctx, script.Batch{Caller: strconv.Itoa(i), Owner: script.Owner{ID: strconv.Itoa(i)}, Validators: validators(hang)})
		})
	}
	eventually(t, "the queue is full", func() bool { return p.Stats().Waiting == 2 })
	_, err := p.Run(context.Background(), script.Batch{Caller: "late", Owner: script.Owner{ID: "late"}, Validators: validators(yes)})
	if !errors.Is(err, script.ErrUnavailable) || !strings.Contains(err.Error(), "try again") {
		t.Error(err)
	}
	if s := p.Stats(); s.Refused != 1 {
		t.Errorf("%+v", s)
	}
	cancel()
	wg.Wait()
}

func TestQuarantine(t *testing.T) {
	p := newPool(t, script.Config{Soft: 5 * time.Millisecond, Hard: 10 * time.Millisecond})
	ask := func(owner, source string) script.Result {
		r, err := p.Run(context.Background(), script.Batch{Caller: owner, Owner: script.Owner{ID: owner}, Validators: validators(source)})
		if err != nil {
			t.Fatal(err)
		}
		return r.Results[0]
	}
	fine := func(owner string) (got script.Result) { // takes up to 5 ms unless the machine is slow
		for range 3 {
			if got = ask(owner, yes); got.Code != script.Timeout {
				break
			}
		}
		return got
	}
	for range 3 {
		if got := ask("o", hang); got.Code != script.Timeout {
			t.Fatalf("%+v", got)
		}
	}
	kills := p.Stats().Kills
	if got := ask("o", hang); got.Code != script.Quarantined || !strings.Contains(got.Detail, "ask an operator") {
		t.Errorf("the fourth time: %+v", got)
	}
	if s := p.Stats(); s.Kills != kills || s.Quarantined != 1 {
		t.Errorf("it was run: %+v", s)
	}
	if got := fine("o"); got.Code != script.OK {
		t.Errorf("another script of theirs: %+v", got)
	}
	if got := ask("p", hang); got.Code != script.Timeout {
		t.Errorf("the same script of somebody else: %+v", got)
	}
	for i := range 7 {
		ask("o", hang+" // "+strconv.Itoa(i))
	}
	if got := ask("o", yes); got.Code != script.Quarantined || !strings.Contains(got.Detail, "author") {
		t.Errorf("the owner: %+v", got)
	}
	if problems, err := p.Check(context.Background(), "o", script.Owner{ID: "o"}, validators(yes)); err != nil || len(problems) != 1 {
		t.Errorf("check: %v, %v", problems, err)
	}
	p.ResetQuarantine("o")
	if got := fine("o"); got.Code != script.OK {
		t.Errorf("after reset: %+v", got)
	}
}

// TestSecondChance: a script that has ended in time before and then runs out of time is retried once.
func TestSecondChance(t *testing.T) {
	p := newPool(t, script.Config{Soft: 5 * time.Millisecond, Hard: 10 * time.Millisecond})
	const source = "(d) => { if (d.loop) for (;;); return true }"
	if got := one(t, p, source, `{"loop":true}`); got.Code != script.Timeout || p.Stats().Retries > 1 { // one retry if the machine was late
		t.Fatalf("unknown: %+v", got)
	}
	if got := one(t, p, source, `{}`); !got.Valid {
		t.Fatalf("%+v", got)
	}
	before := p.Stats().Retries
	if got := one(t, p, source, `{"loop":true}`); got.Code != script.Timeout || p.Stats().Retries != before+1 {
		t.Errorf("known: %+v, %+v", got, p.Stats())
	}
}

// TestHonestCallersAreServed: honest calls succeed while another owner is hostile all the time.
func TestHonestCallersAreServed(t *testing.T) {
	p := newPool(t, script.Config{ScriptStrikes: 1 << 20, OwnerStrikes: 1 << 20, Hard: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = p.Run(ctx, script.Batch{Caller: "hostile", Owner: script.Owner{ID: "hostile"}, Validators: validators(hang)})
			}
		})
	}
	eventually(t, "somebody is killed", func() bool { return p.Stats().Kills > 0 })
	slowest := time.Duration(0)
	for range 200 {
		began := time.Now()
		if got := one(t, p, no, `{}`); got.Reason != "no" {
			t.Errorf("%+v", got)
		}
		slowest = max(slowest, time.Since(began))
	}
	cancel()
	wg.Wait()
	t.Logf("slowest honest call %v, %+v", slowest, p.Stats())
	if slowest > 20*time.Second { // ten times the limit on an idle machine
		t.Errorf("an honest call took %v", slowest)
	}
}

// TestHostDoesNotGrow: memory, goroutines and descriptors of this process do not grow.
// GAVEL_HOSTILE_CALLS=10000 gives the long run.
func TestHostDoesNotGrow(t *testing.T) {
	calls := 60
	if long {
		calls = 300
	}
	if n, err := strconv.Atoi(os.Getenv("GAVEL_HOSTILE_CALLS")); err == nil {
		calls = n
	}
	p := newPool(t, script.Config{
		Soft: 3 * time.Millisecond, Hard: 6 * time.Millisecond, ScriptMemory: 8 << 20, WorkerMemory: 32 << 20,
	})
	sources := []string{hang, spin, explode, panics, "() => { throw 'x'.repeat(1e6) }", "((((", "() => ({ valid: true, reason: 'x'.repeat(1e6) })", no}
	hostile := func(from, to int) {
		for i := from; i < to; i++ {
			source := sources[i%len(sources)] + " // " + strconv.Itoa(i)
			if _, err := p.Run(context.Background(), script.Batch{Caller: strconv.Itoa(i), Owner: script.Owner{ID: strconv.Itoa(i)}, Validators: validators(source)}); err != nil && !errors.Is(err, script.ErrUnavailable) { // a busy machine may fail to start a worker
				t.Fatal(err)
			}
		}
	}
	type size struct {
		heap       uint64
		goroutines int
		files      int
	}
	measure := func() size {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		files, _ := os.ReadDir("/proc/self/fd")
		return size{m.HeapAlloc, runtime.NumGoroutine(), len(files)}
	}
	hostile(0, calls/3)
	before := measure()
	hostile(calls/3, calls)
	after := measure()
	t.Logf("%+v, then %+v after %d calls", before, after, calls-calls/3)
	if after.goroutines > before.goroutines+4 || after.files > before.files+8 {
		t.Error("goroutines or descriptors are left behind")
	}
	// The memory of quarantine and retries is limited; these calls fill it.
	if grown := int64(after.heap) - int64(before.heap); grown > 4<<20 {
		t.Errorf("the heap grew by %d KB", grown>>10)
	}
}

func TestUnhardenedIsReported(t *testing.T) {
	p := newPool(t, script.Config{})
	r, err := p.Run(context.Background(), script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Validators: validators(yes)})
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && len(r.Unhardened) > 0 {
		t.Errorf("missing: %v", r.Unhardened)
	} else if runtime.GOOS != "linux" && len(r.Unhardened) == 0 {
		t.Error("no platform but Linux has it all")
	}
}

// TestIdleWorkersEnd: workers that were started for a busy period end when idle.
func TestIdleWorkersEnd(t *testing.T) {
	p := newPool(t, script.Config{Workers: 3, PerCaller: 3, IdleTime: 200 * time.Millisecond, LastIdleTime: time.Hour})
	var together sync.WaitGroup
	for range 3 {
		together.Go(func() { one(t, p, "() => { for (let i = 0; i < 2e5; i++); return true }", `{}`) })
	}
	together.Wait()
	most := p.Stats().Starts
	if most < 2 {
		t.Fatalf("%d workers ran three scripts at once", most)
	}
	eventually(t, "one worker is left", func() bool { return p.Stats().Workers == 1 })
	if !one(t, p, yes, `{}`).Valid || p.Stats().Starts != most {
		t.Error("the worker that is left does not answer")
	}

	last := newPool(t, script.Config{IdleTime: time.Millisecond, LastIdleTime: 20 * time.Millisecond})
	one(t, last, yes, `{}`)
	eventually(t, "the last worker ends", func() bool { return last.Stats().Workers == 0 })
	if !one(t, last, yes, `{}`).Valid {
		t.Error("no new worker")
	}
	if s := last.Stats(); s.Starts != 2 || s.Deaths != 0 || s.Kills != 0 {
		t.Errorf("an idle worker's end counts as a fault: %+v", s)
	}
}

// TestIdleCheckerEnds: the worker that checked the definitions at startup ends.
func TestIdleCheckerEnds(t *testing.T) {
	p := newPool(t, script.Config{})
	if _, err := p.Check(t.Context(), "o", script.Owner{ID: "o"}, validators(yes)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the checker is gone", func() bool { return p.Stats().Workers == 0 })
}
