package llm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// isOutage reports whether the structural fallback may handle a failure.
func isOutage(err error) bool {
	fail := asError(err)
	return fail != nil && !fail.IsBusy() && !fail.Class.Traits().FromCase
}

// A provider allows ten requests a minute. To the caller that used them up, the provider is busy for as long
// as it refuses; to a caller that did not contribute, it has an outage.
func TestLimitContributors(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]Error{
		"429": {Class: ClassRateLimited}, "429 with Retry-After": {Class: ClassRateLimited, RetryAfter: 40 * time.Second},
		"503": {Class: ClassOverloaded}, "quota": {Class: ClassQuota},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				f := &fake{do: func(context.Context, int, Request) (Reply, error) {
					if asked.Add(1) <= 10 {
						return good(), nil
					}
					said := says
					return Reply{}, &said
				}}
				c := clientOver(t, Config{Retries: -1, CallerRequests: -1}, f)
				for i := range 15 {
					_, err := c.Complete(t.Context(), Request{Caller: "mallory"})
					if (err != nil) != (i >= 10) || isOutage(err) {
						t.Fatalf("question %d: %v", i, err)
					}
				}
				if _, err := c.Complete(t.Context(), Request{Caller: "alice"}); !isOutage(err) {
					t.Errorf("a caller that took no part: %v", err)
				}
				window := map[Class]time.Duration{ClassOverloaded: time.Minute, ClassRateLimited: time.Hour, ClassQuota: 24 * time.Hour}[says.Class]
				pass(window - 30*time.Second)
				if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); err == nil || isOutage(err) {
					t.Errorf("within %v: %v", window, err)
				}
				pass(time.Minute)
				if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); !isOutage(err) {
					t.Errorf("after %v: %v", window, err)
				}
			})
		})
	}
}

// Concurrent requests count as contributions, including those that their caller cancelled.
func TestRunningRequestsContribute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, n int, _ Request) (Reply, error) {
			if n <= 3 {
				return good(), sleepContext(ctx, 5*time.Second)
			}
			return Reply{}, &Error{Class: ClassRateLimited}
		}}
		c := clientOver(t, Config{Retries: -1}, f)
		gone, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _, _ = c.Complete(gone, Request{Caller: "mallory"}) })
		}
		synctest.Wait()
		if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); err == nil || isOutage(err) {
			t.Errorf("while they run: %v", err)
		}
		leave()
		all.Wait()
		if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); err == nil || isOutage(err) {
			t.Errorf("after they were left: %v", err)
		}
	})
}

// Questions to any model of a host contribute to its limit.
func TestOtherModelOfHostContributes(t *testing.T) {
	t.Parallel()
	f := &fake{do: func(_ context.Context, _ int, req Request) (Reply, error) {
		if req.Model == "b" {
			return Reply{}, &Error{Class: ClassRateLimited}
		}
		return good(), nil
	}}
	c, err := newClient(Config{Models: []Model{{ID: "a"}, {ID: "b"}}, Retries: -1}, func(Model, Config) (innermost, error) {
		return innermost{f, func(next Completer) Completer { return next }, func() Capabilities { return Capabilities{} }, "one.host"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Complete(t.Context(), Request{Model: "a", Caller: "mallory"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Complete(t.Context(), Request{Model: "b", Caller: "mallory"}); err == nil || isOutage(err) {
		t.Error(err)
	}
}

// One principal may ask immediately or after a pause, ask slow questions, and cancel. The endpoint limits
// requests but is never down. No sequence of these moves may look like an outage to that principal.
func TestOneCallerCausesNoOutage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type move struct {
			many, pause int
			slow, leave bool
		}
		moves := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) move {
			return move{
				rapid.SampledFrom([]int{1, 1, 2, 5, 12, 30}).Draw(t, "many"), rapid.SampledFrom([]int{0, 1, 10, 31, 59}).Draw(t, "pause"),
				rapid.Bool().Draw(t, "slow"), rapid.IntRange(0, 3).Draw(t, "leave") == 0,
			}
		}), 1, 12).Draw(rt, "moves")
		limit := rapid.IntRange(2, 20).Draw(rt, "limit")
		hint := rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute}).Draw(rt, "retry after")
		unbounded := rapid.Bool().Draw(rt, "no allowance")
		synctest.Test(t, func(t *testing.T) {
			e := &limited{perMinute: limit, hint: hint}
			cfg := Config{}
			if unbounded {
				cfg.CallerRequests, cfg.CallerTokens = -1, -1
			}
			c := clientOver(t, cfg, &fake{do: e.answer})
			if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); err != nil {
				t.Fatal(err)
			}
			for _, m := range moves {
				var all sync.WaitGroup
				for range m.many {
					all.Go(func() {
						ctx := t.Context()
						if m.leave {
							var leave context.CancelFunc
							ctx, leave = context.WithTimeout(ctx, 3*time.Second)
							defer leave()
						}
						req := Request{Caller: "mallory", User: "quick"}
						if m.slow {
							req.User = "slow"
						}
						if _, err := c.Complete(ctx, req); isOutage(err) {
							t.Errorf("%+v, %d a minute: %v", moves, limit, err)
						}
					})
				}
				all.Wait()
				pass(time.Duration(m.pause) * time.Second)
			}
		})
	})
}

// limited is an endpoint that answers a limited number of requests a minute.
type limited struct {
	perMinute int
	hint      time.Duration
	mu        sync.Mutex
	since     time.Time
	n         int
}

func (e *limited) answer(ctx context.Context, _ int, req Request) (Reply, error) {
	e.mu.Lock()
	if time.Since(e.since) >= time.Minute {
		e.since, e.n = time.Now(), 0
	}
	e.n++
	over := e.n > e.perMinute
	e.mu.Unlock()
	if over {
		return Reply{}, &Error{Class: ClassRateLimited, RetryAfter: e.hint}
	}
	took := time.Second
	if req.User == "slow" {
		took = time.Hour
	}
	if err := sleepContext(ctx, took); err != nil {
		return Reply{}, err
	}
	return good(), nil
}

// An endpoint that hangs is detected by the gate's own probe after a few questions. From then on callers fail
// fast, except for an occasional probe. A question that takes too long at a working endpoint is never mistaken
// for an outage.
func TestHanging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: hanging}
		c := clientOver(t, Config{Retries: -1}, f)
		ask := func(req Request) error {
			_, err := c.Complete(t.Context(), req)
			return err
		}
		for range lateLimit {
			if err := ask(Request{Caller: "alice"}); ClassOf(err) != ClassTimeout || isOutage(err) {
				t.Fatalf("late: %v", err)
			}
		}
		var probe Request
		f.do = func(ctx context.Context, n int, req Request) (Reply, error) { probe = req; return hanging(ctx, n, req) }
		if err := ask(Request{Caller: "alice", User: "hers"}); ClassOf(err) != ClassBreakerOpen || !isOutage(err) {
			t.Fatalf("after the gate's own question: %v", err)
		}
		if probe.User == "hers" || probe.Caller != "" {
			t.Errorf("asked was %+v", probe)
		}
		calls := f.calls.Load()
		for _, caller := range []string{"alice", "bob"} {
			if err := ask(Request{Caller: caller}); !isOutage(err) || asError(err).RetryAfter <= 0 || f.calls.Load() != calls {
				t.Errorf("%s: %v", caller, err)
			}
		}
		if s := c.Stats().Models[0].Breaker; s != "open" {
			t.Errorf("the breaker is %s", s)
		}
		pass(breakerOpen)
		if err := ask(Request{Caller: "bob"}); !isOutage(err) || f.calls.Load() != calls+1 {
			t.Errorf("it still hangs: %v", err)
		}
		pass(breakerOpen)
		f.do = answering
		for _, caller := range []string{"bob", "alice"} {
			if err := ask(Request{Caller: caller}); err != nil {
				t.Errorf("it is back, %s: %v", caller, err)
			}
		}
	})
}

func TestSlowQuestionsAreNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, n int, req Request) (Reply, error) {
			if req.User == "slow" {
				return hanging(ctx, n, req)
			}
			return good(), nil
		}}
		c := clientOver(t, Config{Retries: -1, CallerRequests: -1}, f)
		for i := range 20 {
			if _, err := c.Complete(t.Context(), Request{Caller: "mallory", User: "slow"}); ClassOf(err) != ClassTimeout || isOutage(err) {
				t.Fatalf("question %d: %v", i, err)
			}
			if _, err := c.Complete(t.Context(), Request{Caller: "alice"}); err != nil {
				t.Fatalf("alice after %d slow questions of another: %v", i, err)
			}
		}
	})
}

// The gate's probe proves nothing while other questions run.
func TestABusyEndpointIsNotDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientOver(t, Config{Retries: -1}, &fake{do: hanging})
		for range lateLimit {
			_, _ = c.Complete(t.Context(), Request{Caller: "mallory"})
		}
		go func() { _, _ = c.Complete(t.Context(), Request{Caller: "second"}) }()
		synctest.Wait()
		if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); err == nil || isOutage(err) {
			t.Error(err)
		}
	})
}

// A panic during a probe does not prevent the next one.
func TestAProbeThatPanics(t *testing.T) {
	t.Parallel()
	l := newLateness(func() bool { return true })
	l.callers["alice"] = lateLimit
	panics := CompleterFunc(func(context.Context, Request) (Reply, error) { panic("as told") })
	c := withLateness(panics, panics, l)
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it was not asked")
				}
			}()
			_, _ = c.Complete(t.Context(), Request{Caller: "alice"})
		}()
	}
}

func TestDemandForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDemand()
		c := d.wrapWatch(CompleterFunc(func(context.Context, Request) (Reply, error) { return good(), nil }))
		for i := range 2 * maxCallers {
			_, _ = c.Complete(t.Context(), Request{Caller: fmt.Sprint(i)})
			pass(time.Second)
		}
		if n := d.callers.Len(); n > maxCallers {
			t.Errorf("%d callers are remembered", n)
		}
		if last := fmt.Sprint(2*maxCallers - 1); !d.contributed(last, ClassRateLimited) || d.contributed("0", ClassRateLimited) {
			t.Error("the wrong ones are forgotten")
		}
	})
}

func TestAllowance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: answering}
		c := clientOver(t, Config{CallerRequests: 20, CallerTokens: -1, Deadline: 5 * time.Second}, f)
		ask := func(caller string) error {
			_, err := c.Complete(t.Context(), Request{Caller: caller})
			return err
		}
		asked := func(caller string) (n int) {
			for range 100 {
				err := ask(caller)
				if err == nil {
					n++
				} else if ClassOf(err) != ClassShareSpent || !asError(err).IsBusy() || asError(err).RetryAfter <= 0 || asError(err).RetryAfter > 6*time.Second {
					t.Fatalf("%v again after %v", err, asError(err).RetryAfter)
				}
			}
			return n
		}
		total := asked("mallory")
		for range 10 {
			pass(6 * time.Second)
			total += asked("mallory")
		}
		if total > 21 || total < 19 { // the end of a minute is also the start of the next
			t.Errorf("%d requests in a minute", total)
		}
		if err := ask("alice"); err != nil {
			t.Errorf("another caller: %v", err)
		}
		for range 100 {
			if err := ask(""); err != nil {
				t.Fatalf("the gate itself: %v", err)
			}
		}
	})
}

func TestAllowanceOfTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(context.Context, int, Request) (Reply, error) {
			r := good()
			r.Usage = &Usage{Prompt: 900, Completion: 600}
			return r, nil
		}}
		c := clientOver(t, Config{CallerRequests: -1, CallerTokens: 1000}, f)
		ask := func() error {
			_, err := c.Complete(t.Context(), Request{Caller: "mallory", User: "a question"})
			return err
		}
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		err := ask()
		if ClassOf(err) != ClassShareSpent {
			t.Fatal(err)
		}
		if wait := asError(err).RetryAfter; wait < 2*time.Minute-time.Second || wait > 2*time.Minute+time.Second { // the debt of 1000 tokens
			t.Errorf("again after %v", wait)
		}
		pass(asError(err).RetryAfter)
		if err := ask(); err != nil {
			t.Error(err)
		}
	})
}

// If the allowance does not suffice to ask again, the error describes the unusable answer.
func TestSpentAllowanceReportsTheUnusableAnswer(t *testing.T) {
	t.Parallel()
	c := clientOver(t, Config{CallerRequests: 1}, &fake{do: failing(ClassMalformed)})
	if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); ClassOf(err) != ClassMalformed {
		t.Error(err)
	}
	if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); !errors.Is(err, &Error{Class: ClassShareSpent}) {
		t.Error(err)
	}
}
