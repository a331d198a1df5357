package script_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// operators is the owner of the scripts that all callers use.
var operators = script.Owner{ID: "op:eve", Trusted: true}

func asked(caller, source, data string) script.Batch {
	return script.Batch{Caller: caller, Owner: operators, Validators: validators(source), Data: []byte(data)}
}

// The data determine how long byData runs, and whether it kills its worker.
const byData = "(d) => { if (d.hang) Array.prototype.indexOf.call({length: 2**53-1}, 1); if (d.heavy) for (;;); return true }"

// maxTurns is how many calls of others may start between an honest caller's call and its answer. One or two
// are normal; the rest allows for a slow machine.
const maxTurns = 12

// A caller with heavy data on a definition does not starve other callers of the same definition: each call is
// served after a few others, and none fails.
func TestNoisyNeighbour(t *testing.T) {
	for name, perCaller := range map[string]int{"a worker is kept for others": 1, "a lone caller takes all": 2} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, script.Config{Workers: 2, PerCaller: perCaller, Queue: 8, Wait: time.Minute, OwnerStrikes: 1 << 20, ScriptStrikes: 1 << 20})
			ctx, cancel := context.WithCancel(t.Context())
			var noise sync.WaitGroup
			defer noise.Wait()
			defer cancel()
			for range 24 {
				noise.Go(func() {
					for ctx.Err() == nil {
						_, _ = p.Run(ctx, asked("agent:noisy", byData, `{"heavy":true}`))
					}
				})
			}
			for n := range honestCalls() {
				eventually(t, "the noisy caller fills the line", func() bool { return p.Stats().Waiting == 8 })
				before := p.Stats().Trips
				r, err := p.Run(t.Context(), asked("agent:honest", byData, `{}`))
				if err != nil || !r.Results[0].Valid {
					t.Fatalf("call %d: %+v, %v", n, r, err)
				}
				if others := p.Stats().Trips - before - 1; others > maxTurns {
					t.Errorf("call %d waited for %d calls of others", n, others)
				}
			}
		})
	}
}

// honestCalls is how many calls the honest caller makes next to a noisy one.
func honestCalls() int {
	if long {
		return 12
	}
	return 5
}

// Checks of definitions are shared as fairly as decisions.
func TestNoisyNeighbourOfChecks(t *testing.T) {
	p := newPool(t, script.Config{Queue: 8, Wait: time.Minute, OwnerStrikes: 1 << 20, ScriptStrikes: 1 << 20})
	ctx, cancel := context.WithCancel(t.Context())
	var noise sync.WaitGroup
	defer noise.Wait()
	defer cancel()
	for range 24 {
		noise.Go(func() {
			for ctx.Err() == nil {
				_, _ = p.Check(ctx, "agent:noisy", script.Owner{ID: "agent:noisy"}, validators(spin))
			}
		})
	}
	for range honestCalls() {
		eventually(t, "the noisy caller fills the line", func() bool { return p.Stats().Waiting == 8 })
		before := p.Stats().Trips
		if problems, err := p.Check(t.Context(), "agent:honest", operators, validators(yes)); err != nil || len(problems) > 0 {
			t.Fatalf("%v, %v", problems, err)
		}
		if others := p.Stats().Trips - before - 1; others > maxTurns {
			t.Errorf("it waited for %d calls of others", others)
		}
	}
}

// Many calls on one definition wait: those of many callers, or those of a single caller, as over stdio.
func TestManyCallsOnOneDefinitionWait(t *testing.T) {
	t.Parallel()
	for name, caller := range map[string]func(int) string{
		"of many callers": func(i int) string { return "agent:" + string(rune('a'+i%26)) },
		"of one":          func(int) string { return "local:agent" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, script.Config{Wait: time.Minute})
			var calls sync.WaitGroup
			for i := range 600 {
				calls.Go(func() {
					r, err := p.Run(t.Context(), asked(caller(i), byData, `{}`))
					if err != nil || !r.Results[0].Valid {
						t.Errorf("%+v, %v", r, err)
					}
				})
			}
			calls.Wait()
			if s := p.Stats(); s.Refused > 0 {
				t.Errorf("%d were refused", s.Refused)
			}
		})
	}
}

// A call waits until Config.Wait or its own deadline passes, and the error shows which.
func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	p := newPool(t, script.Config{Workers: 1, Wait: 20 * time.Millisecond, Soft: 5 * time.Second, Hard: 10 * time.Second, Total: 10 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	ctx, noisy := script.WithMeter(ctx)
	held := make(chan struct{})
	go func() {
		defer close(held)
		_, _ = p.Run(ctx, asked("agent:noisy", byData, `{"hang":true}`))
	}()
	eventually(t, "the worker is taken", func() bool { return p.Stats().Trips == 1 })
	metered, meter := script.WithMeter(t.Context())
	if _, err := p.Run(metered, asked("agent:honest", byData, `{}`)); !errors.Is(err, script.ErrUnavailable) || !strings.Contains(err.Error(), "try again") {
		t.Errorf("after Wait: %v", err)
	}
	if meter.Waited() < 20*time.Millisecond || meter.Worked() != 0 {
		t.Errorf("it waited %v, and workers worked %v", meter.Waited(), meter.Worked())
	}
	short, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if _, err := p.Run(short, asked("agent:honest", byData, `{}`)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, script.ErrUnavailable) {
		t.Errorf("after its own deadline: %v", err)
	}
	if s := p.Stats(); s.Refused != 1 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
	cancel()
	<-held
	if noisy.Worked() < 20*time.Millisecond {
		t.Errorf("for who left, workers worked %v", noisy.Worked())
	}
}

// Scripts that are only interrupted hold a worker no longer than Total.
func TestTotalBoundsATrip(t *testing.T) {
	t.Parallel()
	p := newPool(t, script.Config{Soft: 20 * time.Millisecond, Hard: 200 * time.Millisecond, Total: 200 * time.Millisecond})
	r, err := p.Run(t.Context(), script.Batch{Owner: operators, Validators: slices.Repeat(validators(spin), 60)})
	if err != nil {
		t.Fatal(err)
	}
	if last := r.Results[59]; last.Code != script.Timeout || !strings.Contains(last.Detail, "was not run") {
		t.Errorf("%+v", last)
	}
	const n = 33 // all valid, in order, in more than one trip
	list := validators(slices.Repeat([]string{yes}, n)...)
	r, err = p.Run(t.Context(), script.Batch{Owner: operators, Routes: conditions(append(slices.Repeat([]string{"false"}, n-11), "true")...), Validators: list[:n]})
	if err != nil || r.Route != n-11 || slices.ContainsFunc(r.Results, func(r script.Result) bool { return !r.Valid }) {
		t.Errorf("%+v, %v", r, err)
	}
}

// ran reports whether a script was run; with these short limits, it may time out on a busy machine.
func ran(r script.Reply) bool {
	return r.Results[0].Valid || r.Results[0].Code == script.Timeout
}

// If a caller's data gets workers killed in a trusted owner's script, that caller alone cannot use the script
// for a while. It gets an error that can be retried.
func TestTrustedScriptsAreHeldForOneCaller(t *testing.T) {
	t.Parallel()
	p := newPool(t, script.Config{Soft: 5 * time.Millisecond, Hard: 10 * time.Millisecond, Total: time.Second})
	for n := range 3 {
		r, err := p.Run(t.Context(), asked("agent:mallory", byData, `{"hang":true}`))
		if err != nil || r.Results[0].Code != script.Timeout {
			t.Fatalf("kill %d: %+v, %v", n, r, err)
		}
	}
	_, err := p.Run(t.Context(), asked("agent:mallory", byData, `{}`))
	held, ok := errors.AsType[*script.QuarantineError](err)
	if !ok || !errors.Is(err, script.ErrUnavailable) || held.RetryAfter <= 0 || held.RetryAfter > time.Minute {
		t.Errorf("after three kills: %v", err)
	}
	if _, err := p.Check(t.Context(), "agent:mallory", operators, validators(byData)); !errors.Is(err, script.ErrUnavailable) {
		t.Errorf("a check for the same caller: %v", err)
	}
	for n := range 10 { // reaches the limit for all scripts of this caller
		_, _ = p.Run(t.Context(), asked("agent:mallory", byData+" // "+string(rune('a'+n)), `{"hang":true}`))
	}
	for _, caller := range []string{"agent:honest", operators.ID} {
		if r, err := p.Run(t.Context(), asked(caller, byData, `{}`)); err != nil || !ran(r) {
			t.Errorf("%s: %+v, %v", caller, r, err)
		}
	}
	own := script.Batch{Caller: "agent:mallory", Owner: script.Owner{ID: "agent:mallory"}, Validators: validators(yes)}
	if r, err := p.Run(t.Context(), own); err != nil || !ran(r) {
		t.Errorf("its own scripts: %+v, %v", r, err)
	}
	if err := p.Probe(t.Context()); err != nil {
		t.Errorf("the probe: %v", err)
	}
	p.ResetQuarantine("agent:mallory")
	if _, err := p.Run(t.Context(), asked("agent:mallory", byData, `{"a":1}`)); err != nil {
		t.Errorf("after a reset: %v", err)
	}
}

// If one agent's data kills workers in another agent's script, the script is suspended for that caller only,
// not for its owner or for others.
func TestSharedScriptsAreHeldForOneCaller(t *testing.T) {
	t.Parallel()
	p := newPool(t, script.Config{Soft: 5 * time.Millisecond, Hard: 10 * time.Millisecond, Total: time.Second})
	shared := func(caller, data string) script.Batch {
		b := asked(caller, byData, data)
		b.Owner = script.Owner{ID: "agent:owner"}
		return b
	}
	for n := range 3 {
		r, err := p.Run(t.Context(), shared("agent:mallory", `{"hang":true}`))
		if err != nil || r.Results[0].Code != script.Timeout {
			t.Fatalf("kill %d: %+v, %v", n, r, err)
		}
	}
	if _, err := p.Run(t.Context(), shared("agent:mallory", `{}`)); !errors.Is(err, script.ErrUnavailable) {
		t.Errorf("after three kills: %v", err)
	}
	for _, caller := range []string{"agent:owner", "agent:honest"} {
		if r, err := p.Run(t.Context(), shared(caller, `{}`)); err != nil || !ran(r) {
			t.Errorf("%s: %+v, %v", caller, r, err)
		}
	}
	if _, err := p.Run(t.Context(), asked("agent:mallory", byData, `{}`)); err != nil {
		t.Errorf("the same script of an operator: %v", err)
	}
}

// A probe does not wait in the queue.
func TestProbe(t *testing.T) {
	t.Parallel()
	p := newPool(t, script.Config{Workers: 1, Queue: 1, Soft: time.Minute, Hard: 2 * time.Minute, Total: 2 * time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var noise sync.WaitGroup
	for range 2 {
		noise.Go(func() { _, _ = p.Run(ctx, asked("a", spin, `{}`)) })
		noise.Go(func() { _, _ = p.Check(ctx, "a", operators, validators(spin)) })
	}
	eventually(t, "both sets of workers are busy", func() bool { s := p.Stats(); return s.Trips == 2 && s.Waiting == 2 })
	if err := p.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	noise.Wait()
	eventually(t, "its worker is gone", func() bool { return p.Stats().Workers == p.Idle() })

	none := newPool(t, script.Config{WorkerPath: "/nonexistent/worker"})
	if err := none.Probe(t.Context()); !errors.Is(err, script.ErrUnavailable) {
		t.Errorf("without a worker: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Probe(t.Context()); !errors.Is(err, script.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
}
