package llm

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: failing(ClassNetwork)}
		c := clientOver(t, Config{Retries: -1}, f)
		for range 5 {
			if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassNetwork {
				t.Fatal(err)
			}
		}
		_, err := c.Complete(t.Context(), Request{})
		if ClassOf(err) != ClassBreakerOpen || asError(err).RetryAfter != 30*time.Second || f.calls.Load() != 5 || asError(err).Calls != 0 {
			t.Errorf("open: %v, %d calls", err, f.calls.Load())
		}
		pass(30*time.Second + time.Millisecond)
		f.do = hanging // the probe hangs, which must not keep the breaker half-open forever
		done := make(chan error)
		go func() { _, err := c.Complete(t.Context(), Request{}); done <- err }()
		synctest.Wait()
		if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassBreakerOpen || asError(err).Breaker != "half-open" {
			t.Errorf("beside the probe: %v", err)
		}
		if err := <-done; ClassOf(err) != ClassTimeout {
			t.Errorf("the probe: %v", err)
		}
		pass(30*time.Second + time.Millisecond)
		f.do = answering
		if reply, err := c.Complete(t.Context(), Request{}); err != nil || reply.Breaker != "half-open" {
			t.Errorf("back: %+v, %v", reply, err)
		}
		if s := c.Stats().Models[0]; s.Breaker != "closed" || s.LastError == nil || s.LastError.Class != ClassTimeout {
			t.Errorf("%+v", s)
		}
	})
}

// BenchmarkBreakerOpen measures the cost of a decision while the breaker is open, and of the same stack with
// an endpoint that answers immediately.
func BenchmarkBreakerOpen(b *testing.B) {
	run := func(name string, f *fake, prepare int) {
		b.Run(name, func(b *testing.B) {
			c := clientOver(b, Config{Retries: -1}, f)
			for range prepare {
				_, _ = c.Complete(b.Context(), Request{})
			}
			for i := 0; b.Loop(); i++ {
				_, _ = c.Complete(b.Context(), Request{Key: strconv.Itoa(i)})
			}
		})
	}
	run("open", &fake{do: failing(ClassNetwork)}, 5)
	run("baseline-answering", &fake{do: answering}, 0)
}

// Consecutive failures or their share open a breaker. Results that reveal nothing about the endpoint neither
// open nor close it.
func TestFailuresOpenTheBreaker(t *testing.T) {
	t.Parallel()
	const fails, fine, nothing = ClassNetwork, ClassRefusal, ClassRateLimited
	seq := func(n int, cs ...Class) (out []Class) {
		for range n {
			out = append(out, cs...)
		}
		return out
	}
	for name, tc := range map[string]struct {
		seen []Class
		open bool
	}{
		"four in a row":           {seq(4, fails), false},
		"five in a row":           {seq(5, fails), true},
		"with others in between":  {append(seq(4, fails, nothing), fails), true},
		"a third of many":         {seq(5, fine, fails, fine), false},
		"half of too few":         {seq(2, fine, fails), false},
		"half of enough":          {seq(3, fine, fails), true},
		"nothing but exclusions":  {seq(50, nothing), false},
		"a model that will not":   {seq(50, fine), false},
		"callers who left":        {seq(50, ""), false},
		"four long ago, then one": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var now Class
				b := newBreaker(Config{}.withDefaults())
				c := withBreaker(CompleterFunc(func(context.Context, Request) (Reply, error) {
					if now == "" {
						return Reply{}, context.Canceled
					}
					return Reply{}, &Error{Class: now}
				}), b)
				if tc.seen == nil {
					tc.seen = seq(4, fails)
				}
				for i, class := range tc.seen {
					now = class
					if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) == ClassBreakerOpen {
						t.Fatalf("open after %d", i)
					}
				}
				if name == "four long ago, then one" {
					pass(3 * time.Minute)
					_, _ = c.Complete(t.Context(), Request{})
				}
				if open := b.state() == "open"; open != tc.open {
					t.Errorf("%s: %+v", b.state(), b.two.Counts())
				}
			})
		})
	}
}

// A breaker never gets stuck, even if probes and concurrent questions hang, are cancelled or panic. A
// recovered endpoint answers after one more breakerOpen.
func TestBreakerRecovers(t *testing.T) {
	t.Parallel()
	behaviours := []string{"answer", "fail", "nothing", "hang", "leave", "panic"}
	rapid.Check(t, func(rt *rapid.T) {
		rounds := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom(behaviours), 1, 8), 1, 8).Draw(rt, "rounds")
		pauses := rapid.SliceOfN(rapid.IntRange(0, 40), len(rounds), len(rounds)).Draw(rt, "pauses in seconds")
		synctest.Test(t, func(t *testing.T) {
			f := &fake{do: func(ctx context.Context, _ int, req Request) (Reply, error) {
				switch req.User {
				case "fail":
					return Reply{}, &Error{Class: ClassUpstream}
				case "nothing":
					return Reply{}, &Error{Class: ClassTooLong}
				case "hang", "leave":
					return hanging(ctx, 0, req)
				case "panic":
					panic("as told")
				}
				return good(), nil
			}}
			c := clientOver(t, Config{Retries: -1}, f)
			for i, round := range rounds {
				var wg sync.WaitGroup
				for _, b := range round {
					wg.Go(func() {
						defer func() { _ = recover() }()
						ctx := t.Context()
						if b == "leave" {
							var leave context.CancelFunc
							ctx, leave = context.WithTimeout(ctx, time.Second)
							defer leave()
						}
						began := time.Now()
						_, _ = c.Complete(ctx, Request{User: b, Caller: b})
						if took := time.Since(began); took > c.cfg.Deadline {
							t.Errorf("%v: %s took %v", rounds, b, took)
						}
					})
				}
				wg.Wait()
				pass(time.Duration(pauses[i]) * time.Second)
			}
			pass(breakerOpen + time.Millisecond)
			for range 2 {
				if _, err := c.Complete(t.Context(), Request{}); err != nil {
					t.Fatalf("%v, pauses %v: %v", rounds, pauses, err)
				}
			}
			if s := c.models[0].breaker.state(); s != "closed" {
				t.Fatalf("%v: %s", rounds, s)
			}
		})
	})
}

// The window slides: failures before the start of a new interval count together with those after it.
func TestTheWindowSlides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: answering}
		c := clientOver(t, Config{Retries: -1}, f)
		ask := func(n int, class Class) {
			f.do = failing(class)
			for range n {
				_, _ = c.Complete(t.Context(), Request{})
			}
		}
		pass(110 * time.Second)
		ask(3, ClassNetwork)
		pass(20 * time.Second)
		ask(2, ClassNetwork)
		if s := c.models[0].breaker.state(); s != "open" {
			t.Errorf("%s after five failures in 20 s", s)
		}
	})
}

// A question that waited for a place does not call an endpoint that was found dead or asked for a pause in the
// meantime.
func TestRecheckAfterWait(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		says *Error
		want Class
	}{
		{&Error{Class: ClassNetwork}, ClassBreakerOpen},
		{&Error{Class: ClassRateLimited, RetryAfter: time.Minute}, ClassNotBefore},
	} {
		t.Run(string(tc.want), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{do: func(ctx context.Context, _ int, _ Request) (Reply, error) {
					_ = sleepContext(ctx, 500*time.Millisecond)
					return Reply{}, tc.says
				}}
				c := clientOver(t, Config{Retries: -1, BreakerFailures: 1, Parallel: 1}, f)
				go func() { _, _ = c.Complete(t.Context(), Request{}) }()
				synctest.Wait()
				_, err := c.Complete(t.Context(), Request{})
				if ClassOf(err) != tc.want || asError(err).RetryAfter <= 0 || asError(err).Calls != 0 || f.calls.Load() != 1 {
					t.Errorf("%+v after %d calls", err, f.calls.Load())
				}
			})
		})
	}
}
