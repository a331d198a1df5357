package chain_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/judge"
)

var operator = engine.Principal{ID: "ann", Role: engine.RoleOperator}

// fakeStarter has runs that last for a fixed time.
type fakeStarter struct {
	lasts time.Duration
	mu    sync.Mutex
	began map[string]time.Time
	owner map[string]string
	ended map[string]bool
	asked []string // every start, including repeated ones
	fails error
}

func (f *fakeStarter) StartTick(_ context.Context, p engine.Principal, req chain.StartRun) (chain.RunView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, req.Run)
	if f.fails != nil {
		return chain.RunView{}, f.fails
	}
	if _, ok := f.began[req.Run]; !ok {
		f.began[req.Run], f.owner[req.Run] = time.Now(), p.ID
	}
	if f.owner[req.Run] != p.ID {
		return chain.RunView{}, &engine.Error{Code: engine.CodeKeyReused, Message: "It is another's."}
	}
	return chain.RunView{Run: req.Run, Status: chain.StatusRunning}, nil
}

// canSee reports whether a principal may see a run. The caller must hold mu.
func (f *fakeStarter) canSee(p engine.Principal, run string) bool {
	_, ok := f.began[run]
	return ok && (p.Role != engine.RoleAgent || f.owner[run] == p.ID)
}

func (f *fakeStarter) ReadStatus(_ context.Context, p engine.Principal, run string) (chain.RunView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.canSee(p, run) {
		return chain.RunView{}, &engine.Error{Code: engine.CodeUnknownInstance, Message: "There is no such run."}
	}
	v := chain.RunView{Run: run, Status: chain.StatusRunning}
	if f.ended[run] || time.Since(f.began[run]) >= f.lasts {
		v.Status = chain.StatusDone
	}
	return v, nil
}

func (f *fakeStarter) CancelRun(_ context.Context, p engine.Principal, run, _ string) (chain.RunView, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.canSee(p, run) {
		return chain.RunView{}, &engine.Error{Code: engine.CodeUnknownInstance, Message: "There is no such run."}
	}
	f.ended[run] = true
	return chain.RunView{Run: run, Status: chain.StatusCancelled}, nil
}

// countRuns returns how many runs have started.
func (f *fakeStarter) countRuns() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.began)
}

func newStarter(lasts time.Duration) *fakeStarter {
	return &fakeStarter{lasts: lasts, began: map[string]time.Time{}, owner: map[string]string{}, ended: map[string]bool{}}
}

var errKilled = errors.New("the process is killed")

// process is a replica that is killed at a random moment. After that its calls have no effect, and its
// leases are not released.
type process struct {
	store.Store
	chain.Starter
	mu    sync.Mutex
	lives int // remaining calls; negative means unlimited
	dead  bool
}

// call calls do unless the process dies first; the process may also die before it sees the result.
func call[T any](p *process, do func() (T, error)) (T, error) {
	var zero T
	p.mu.Lock()
	if p.lives == 0 {
		p.dead = true
	}
	dead := p.dead
	p.lives--
	last := p.lives == 0 && rand.N(2) == 0
	p.mu.Unlock()
	if dead {
		return zero, errKilled
	}
	v, err := do()
	if last {
		p.mu.Lock()
		p.dead = true
		p.mu.Unlock()
		return zero, errKilled
	}
	return v, err
}

func (p *process) Commit(ctx context.Context, c store.Commit) error {
	_, err := call(p, func() (int, error) { return 0, p.Store.Commit(ctx, c) })
	return err
}

func (p *process) TakeLease(ctx context.Context, name, owner string, d time.Duration) (store.Lease, error) {
	return call(p, func() (store.Lease, error) { return p.Store.TakeLease(ctx, name, owner, d) })
}

func (p *process) EndLease(ctx context.Context, l store.Lease) error {
	_, err := call(p, func() (int, error) { return 0, p.Store.EndLease(ctx, l) })
	return err
}

func (p *process) StartTick(ctx context.Context, who engine.Principal, req chain.StartRun) (chain.RunView, error) {
	return call(p, func() (chain.RunView, error) { return p.Starter.StartTick(ctx, who, req) })
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

var nightly = engine.Principal{ID: "nightly", Role: engine.RoleAgent}

func newSchedules(t *testing.T, db store.Store, chains map[string]*chain.Definition) *chain.Schedules {
	t.Helper()
	return newChangingSchedules(t, db, func() map[string]*chain.Definition { return chains })
}

func newChangingSchedules(t *testing.T, db store.Store, chains func() map[string]*chain.Definition) *chain.Schedules {
	t.Helper()
	e := enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store = db })
	return &chain.Schedules{Engine: e, Chains: chains, RunAs: func() (engine.Principal, bool) { return nightly, true }}
}

// scheduled returns the chains of a schedule.
func scheduled(t *testing.T, schedule string) map[string]*chain.Definition {
	t.Helper()
	d, err := chain.Parse("chain.yaml", []byte(chain.WithSchedule(schedule)))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*chain.Definition{d.Name: d}
}

var quiet = slog.New(slog.DiscardHandler)

// TestTicksRunOnce: with two replicas over one store that are killed repeatedly, each of 1000 ticks has one
// run.
func TestTicksRunOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 20 * time.Second
		db, runs := memory.New(), newStarter(interval/10)
		chains := scheduled(t, `{type: interval, seconds: 20, missed: all, overlap: queue}`)
		ctx, cancel := context.WithCancel(t.Context())
		var replicas sync.WaitGroup
		kills := 0
		for replica := range 2 {
			replicas.Go(func() {
				for ctx.Err() == nil {
					p := &process{Store: db, Starter: runs, lives: 5 + rand.N(50)}
					life, end := context.WithCancel(ctx)
					s := newSchedules(t, p, chains)
					var running sync.WaitGroup
					running.Go(func() { s.RunTicks(life, p, quiet) })
					for life.Err() == nil && !p.isDead() {
						select {
						case <-ctx.Done():
						case <-time.After(time.Second):
						}
						if ctx.Err() != nil {
							break
						}
					}
					if p.isDead() && replica == 0 {
						kills++
					}
					end()
					running.Wait()
				}
			})
		}
		from := time.Now()
		time.Sleep(1000*interval + 10*time.Minute) //nolint:forbidigo // by the clock of synctest
		cancel()
		replicas.Wait()
		var d *chain.Definition
		for _, d = range chains {
		}
		ticks := chain.ListTicks(d.Schedule, from.Add(time.Second), from.Add(1000*interval+time.Second))
		if len(ticks) != 1000 || kills < 100 {
			t.Fatalf("%d ticks, %d kills", len(ticks), kills)
		}
		for _, tick := range ticks {
			if _, ok := runs.began[chain.TickRun(d.Name, time.Unix(tick, 0))]; !ok {
				t.Errorf("no run of %s", time.Unix(tick, 0).UTC())
			}
		}
		if n, most := len(runs.began), 1000+int(10*time.Minute/interval); n < 1000 || n > most { // includes the last ten minutes
			t.Errorf("%d runs of 1000 ticks", len(runs.began))
		}
		again := len(runs.asked) - len(runs.began)
		t.Logf("%d kills of the first replica, %d starts asked for once more", kills, again)
		if again == 0 {
			t.Error("no kill came between a start and its record: the test sees nothing")
		}
	})
}

// TestTicksMissedAndOverlapping checks the outcome of ticks for each value of missed and overlap.
func TestTicksMissedAndOverlapping(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		schedule string
		lasts    time.Duration // how long each run lasts
		down     time.Duration // outage of all processes, after five minutes
		runs     int           // runs after an hour
		outcome  string        // the outcome of the last tick
		reason   string
	}{
		"each of a minute":              {`{type: interval, seconds: 60}`, time.Second, 0, 60, chain.TickStarted, ""},
		"each second of a minute":       {`{type: interval, seconds: 1}`, time.Minute, 0, 60, chain.TickSkipped, "a run is under way"},
		"each second, replaced":         {`{type: interval, seconds: 60, overlap: replace}`, time.Hour, 0, 60, chain.TickStarted, "it replaced a run"},
		"each minute, allowed":          {`{type: interval, seconds: 60, overlap: allow}`, time.Hour, 0, 60, chain.TickStarted, ""},
		"each minute, queued":           {`{type: interval, seconds: 60, overlap: queue}`, 2 * time.Minute, 0, 30, chain.TickQueued, "a run is under way"},
		"queued until no more wait":     {`{type: interval, seconds: 1, overlap: queue}`, time.Hour, 0, 1, chain.TickSkipped, "100 ticks are already waiting"},
		"down, the latest":              {`{type: interval, seconds: 60}`, time.Second, 30 * time.Minute, 31, chain.TickStarted, ""},
		"down, all":                     {`{type: interval, seconds: 60, missed: all, overlap: allow}`, time.Second, 30 * time.Minute, 60, chain.TickStarted, ""},
		"down, all within five minutes": {`{type: interval, seconds: 60, missed: all, missedWithin: 5m30s, overlap: allow}`, time.Second, 30 * time.Minute, 36, chain.TickStarted, ""},
		"down, none":                    {`{type: interval, seconds: 1800, missed: skip}`, time.Second, 50 * time.Minute, 1, chain.TickStarted, ""},
		"down, too old":                 {`{type: interval, seconds: 1800, missedWithin: 5m}`, time.Second, 50 * time.Minute, 1, chain.TickStarted, ""},
		"jitter":                        {`{type: interval, seconds: 600, jitter: 9m}`, time.Second, 0, 5, chain.TickStarted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				runs, chains := newStarter(tt.lasts), scheduled(t, tt.schedule)
				s := newSchedules(t, memory.New(), chains)
				look := func(d time.Duration) {
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					s.RunTicks(ctx, runs, quiet)
				}
				if tt.down > 0 {
					look(5*time.Minute + time.Second/2)
					time.Sleep(tt.down) //nolint:forbidigo // by the clock of synctest
				}
				look(time.Hour + time.Second/2 - time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
				if len(runs.began) != tt.runs {
					t.Errorf("%d runs and not %d", len(runs.began), tt.runs)
				}
				all, err := s.ListSchedules(t.Context(), operator)
				if err != nil || len(all) != 1 || all[0].Last == nil || all[0].RunAs != "nightly" || all[0].Next.IsZero() {
					t.Fatalf("%+v, %v", all, err)
				}
				if last := all[0].Last; last.Outcome != tt.outcome || last.Reason != tt.reason {
					t.Errorf("the last tick: %+v", last)
				}
			})
		})
	}
}

func TestScheduleIsPausedAndTriggered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs, first := newStarter(time.Second), scheduled(t, `{type: interval, seconds: 60}`)
		var name string
		for name = range first {
		}
		var chains atomic.Pointer[map[string]*chain.Definition]
		chains.Store(&first)
		s := newChangingSchedules(t, memory.New(), func() map[string]*chain.Definition { return *chains.Load() })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.RunTicks(ctx, runs, quiet) })
		defer func() { cancel(); running.Wait() }()
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() } //nolint:forbidigo // by the clock of synctest
		wait(2*time.Minute + time.Second/2)
		v, err := s.PauseSchedule(ctx, operator, name, "the site moves")
		if err != nil || !v.Paused || v.Note.By != "ann" || v.Note.Why != "the site moves" || !v.Next.IsZero() {
			t.Fatalf("%+v, %v", v, err)
		}
		if _, err := s.PauseSchedule(ctx, operator, name, ""); !chain.IsCode(err, engine.CodeConflict) {
			t.Errorf("paused twice: %v", err)
		}
		wait(10 * time.Minute)
		if runs.countRuns() != 2 {
			t.Errorf("%d runs before and in the pause", runs.countRuns())
		}
		tick, err := s.TriggerSchedule(ctx, operator, name, "to see")
		if err != nil {
			t.Fatal(err)
		}
		wait(2 * time.Second)
		if v, err := runs.ReadStatus(ctx, nightly, tick.Run); err != nil || !v.HasEnded() || runs.countRuns() != 3 {
			t.Errorf("%d runs, none is the one asked for", runs.countRuns())
		}
		if v, err = s.ResumeSchedule(ctx, operator, name, "moved"); err != nil || v.Paused || v.Note.Why != "moved" || v.Last.Reason != "paused by ann: the site moves" || v.Last.Since.IsZero() {
			t.Fatalf("%+v, %v", v, err)
		}
		wait(2 * time.Minute)
		if runs.countRuns() != 5 {
			t.Errorf("%d runs after the pause", runs.countRuns())
		}
		// A changed schedule begins with its next tick.
		changed := scheduled(t, `{type: interval, seconds: 7}`)
		chains.Store(&changed)
		wait(time.Second)
		if runs.countRuns() != 5 {
			t.Errorf("%d runs: ticks of before the change are no missed ones", runs.countRuns())
		}
		wait(7 * time.Second)
		if runs.countRuns() != 6 {
			t.Errorf("%d runs after the change", runs.countRuns())
		}
		// A run that cannot start is reported.
		runs.mu.Lock()
		runs.fails = &engine.Error{Code: engine.CodeForbidden, Message: "It may not."}
		runs.mu.Unlock()
		wait(7 * time.Second)
		all, err := s.ListSchedules(ctx, operator)
		if err != nil || all[0].Last.Outcome != chain.TickRefused || all[0].Last.Reason != "It may not." {
			t.Errorf("%+v, %v", all, err)
		}
		got := s.ListActions(t, name)
		for _, action := range chain.ScheduleActions {
			if !slices.Contains(got, action) {
				t.Errorf("no %s among %v", action, got)
			}
		}
		for _, p := range []engine.Principal{nightly, {ID: "r", Role: engine.RoleReviewer}, {ID: "o", Role: engine.RoleOperator, Workflows: "other"}} {
			if _, err := s.PauseSchedule(ctx, p, name, ""); err == nil {
				t.Errorf("%s paused it", p.ID)
			}
		}
		if all, err := s.ListSchedules(ctx, nightly); err != nil || len(all) != 0 {
			t.Errorf("an agent sees %v, %v", all, err)
		}
	})
}

// unreadableSchedule is a store in which the stored state of one chain's schedule is damaged.
type unreadableSchedule struct {
	store.Store
	chain string
}

func (u unreadableSchedule) Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error] {
	if q.Subject != u.chain {
		return u.Store.Instances(ctx, q)
	}
	return func(yield func(record.Instance, error) bool) { yield(record.Instance{}, store.ErrDamaged) }
}

// TestDamagedScheduleStopsNoOther: the ticks of later chains still run.
func TestDamagedScheduleStopsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		chains := map[string]*chain.Definition{}
		for _, d := range scheduled(t, `{type: interval, seconds: 60}`) {
			for _, name := range []string{"a", "b"} {
				of := *d
				of.Name = name
				chains[name] = &of
			}
		}
		runs := newStarter(time.Second)
		s := newSchedules(t, unreadableSchedule{memory.New(), "a"}, chains)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Second/2)
		defer cancel()
		s.RunTicks(ctx, runs, quiet)
		if n := runs.countRuns(); n != 5 {
			t.Errorf("%d runs and not 5", n)
		}
	})
}

// slowStarter takes a while to start a run.
type slowStarter struct{ *fakeStarter }

func (s slowStarter) StartTick(ctx context.Context, p engine.Principal, req chain.StartRun) (chain.RunView, error) {
	time.Sleep(100 * time.Millisecond) //nolint:forbidigo // by the clock of synctest
	return s.fakeStarter.StartTick(ctx, p, req)
}

// TestBacklogDelaysNoOther: while one chain needs minutes to catch up with the ticks of an hour, the ticks
// of another chain start on time, and none is lost.
func TestBacklogDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		chains := map[string]*chain.Definition{}
		for name, schedule := range map[string]string{"a": `{type: interval, seconds: 2, missed: all, overlap: allow}`, "b": `{type: interval, seconds: 60, missed: skip}`} {
			for _, d := range scheduled(t, schedule) {
				d.Name = name
				chains[name] = d
			}
		}
		runs := newStarter(time.Second)
		s := newSchedules(t, memory.New(), chains)
		begun := time.Now()
		look := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			s.RunTicks(ctx, slowStarter{runs}, quiet)
		}
		look(time.Second)
		time.Sleep(time.Hour) //nolint:forbidigo // by the clock of synctest
		back := time.Now()
		look(5*time.Minute + time.Second/2)
		for _, at := range chain.ListTicks(chains["a"].Schedule, begun.Add(time.Second), time.Now().Add(-time.Second)) {
			if _, ok := runs.began[chain.TickRun("a", time.Unix(at, 0))]; !ok {
				t.Fatalf("the tick of %s was lost", time.Unix(at, 0).UTC())
			}
		}
		for _, at := range chain.ListTicks(chains["b"].Schedule, back.Add(time.Second), time.Now()) {
			tick := time.Unix(at, 0)
			if began, ok := runs.began[chain.TickRun("b", tick)]; !ok || began.Sub(tick) > 2*time.Second {
				t.Errorf("the tick of %s: it ran is %t, at %s", tick.UTC(), ok, began.UTC())
			}
		}
		if len(runs.asked) != len(runs.began) {
			t.Errorf("%d runs were started %d times", len(runs.began), len(runs.asked))
		}
	})
}

// TestOverlapIsOfTheSchedule: after the principal changes, runs that began for the old one still count as
// in progress.
func TestOverlapIsOfTheSchedule(t *testing.T) {
	t.Parallel()
	for overlap, want := range map[string]struct{ runs, cancelled int }{"skip": {1, 0}, "queue": {1, 0}, "replace": {5, 4}} {
		t.Run(overlap, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				chains := scheduled(t, `{type: interval, seconds: 60, overlap: `+overlap+`}`)
				runs, from := newStarter(time.Hour), time.Now()
				s := &chain.Schedules{
					Engine: enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store = memory.New() }), Chains: func() map[string]*chain.Definition { return chains },
					RunAs: func() (engine.Principal, bool) {
						if time.Since(from) > 90*time.Second {
							return engine.Principal{ID: "weekly", Role: engine.RoleAgent}, true
						}
						return nightly, true
					},
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Second/2)
				defer cancel()
				s.RunTicks(ctx, runs, quiet)
				if len(runs.began) != want.runs || len(runs.ended) != want.cancelled {
					t.Errorf("%d runs, %d cancelled", len(runs.began), len(runs.ended))
				}
			})
		})
	}
}

// TestStartedForAnother: a run that was started before a kill belongs to the tick, even if its principal is
// no longer configured.
func TestStartedForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		chains := scheduled(t, `{type: interval, seconds: 60}`)
		runs := newStarter(time.Hour)
		for name := range chains {
			if _, err := runs.StartTick(t.Context(), operator, chain.StartRun{Chain: name, Run: chain.TickRun(name, time.Now().Add(time.Minute))}); err != nil {
				t.Fatal(err)
			}
		}
		s := newSchedules(t, memory.New(), chains)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Second/2)
		defer cancel()
		s.RunTicks(ctx, runs, quiet)
		if all, err := s.ListSchedules(t.Context(), operator); err != nil || len(runs.began) != 1 || all[0].Last.Reason != "a run is under way" {
			t.Errorf("%d runs, %+v, %v", len(runs.began), all, err)
		}
	})
}

// TestScheduleAheadOfTheClock: a warning shows the ticks that a fast clock has passed, an operator can fix
// this, and no tick runs twice.
func TestScheduleAheadOfTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		ahead.Store(int64(time.Hour))
		chains := scheduled(t, `{type: interval, seconds: 600}`)
		var name string
		for name = range chains {
		}
		runs, from := newStarter(time.Second), time.Now()
		e := enginetest.New(t, judge.Config{}, func(c *engine.Config) {
			c.Store, c.Now = memory.New(), func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		s := &chain.Schedules{Engine: e, Chains: func() map[string]*chain.Definition { return chains }, RunAs: func() (engine.Principal, bool) { return nightly, true }}
		var log strings.Builder
		look := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			s.RunTicks(ctx, runs, slog.New(slog.NewTextHandler(&log, nil)))
		}
		warning := func() string {
			all, err := s.ListSchedules(t.Context(), operator)
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			return all[0].Warning
		}
		look(10*time.Minute + time.Second/2) // the tick of 01:10, at 00:10
		if len(runs.began) != 1 || warning() != "" {
			t.Fatalf("%d runs, %q", len(runs.began), warning())
		}
		ahead.Store(0)
		look(20 * time.Minute)
		const want = "The clock was ahead: no tick before 2000-01-01T01:10:00Z. Pause and resume the schedule."
		if warning() != want || strings.Count(log.String(), want) != 1 || len(runs.began) != 1 {
			t.Errorf("%d runs, %q, the log says %s", len(runs.began), warning(), log.String())
		}
		if _, err := s.PauseSchedule(t.Context(), operator, name, ""); err != nil || warning() != "" {
			t.Fatal(err, warning())
		}
		if _, err := s.ResumeSchedule(t.Context(), operator, name, ""); err != nil || warning() != "" {
			t.Fatal(err, warning())
		}
		look(time.Hour + 20*time.Minute + time.Second - time.Since(from))
		ticks := chain.ListTicks(chains[name].Schedule, from.Add(31*time.Minute), time.Now())
		for _, at := range ticks {
			if _, ok := runs.began[chain.TickRun(name, time.Unix(at, 0))]; !ok {
				t.Errorf("the tick of %s did not run", time.Unix(at, 0).UTC())
			}
		}
		if len(ticks) != 5 || len(runs.began) != 5 || len(runs.asked) != 6 { // the tick of 01:10 already had its run from 00:10
			t.Errorf("%d ticks, %d runs, asked for %d times", len(ticks), len(runs.began), len(runs.asked))
		}
	})
}
