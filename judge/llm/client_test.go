package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// fake is an innermost that does what a test says.
type fake struct {
	calls atomic.Int32
	do    func(ctx context.Context, n int, req Request) (Reply, error)
}

func (f *fake) Complete(ctx context.Context, req Request) (Reply, error) {
	n := int(f.calls.Add(1))
	reply, err := f.do(ctx, n, req)
	reply.Calls = 1
	if fail := ours(err); fail != nil {
		err = fail.afterCalls(1)
	}
	return reply, err
}

// good is a usable answer.
func good() Reply { return Reply{Answer: Answer{Approved: true, Confidence: 0.9}} }

func answering(context.Context, int, Request) (Reply, error) { return good(), nil }

func failing(c Class) func(context.Context, int, Request) (Reply, error) {
	return func(context.Context, int, Request) (Reply, error) {
		return Reply{}, &Error{Class: c, Message: "as told"}
	}
}

func hanging(ctx context.Context, _ int, _ Request) (Reply, error) {
	<-ctx.Done()
	return Reply{}, contextError(ctx)
}

// clientOver is a client whose models are fakes, the first one the default.
func clientOver(t testing.TB, cfg Config, fakes ...*fake) *Client {
	t.Helper()
	byName := map[string]*fake{}
	for i, f := range fakes {
		name := fmt.Sprintf("m%d", i)
		cfg.Models = append(cfg.Models, Model{Name: name, ID: name})
		byName[name] = f
		if i > 0 {
			cfg.Fallbacks = append(cfg.Fallbacks, name)
		}
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func() float64 { return 1 }
	}
	c, err := newClient(cfg, func(m Model) (innermost, error) {
		return innermost{byName[m.Name], func(next Completer) Completer { return next }, func() Capabilities { return Capabilities{} }, m.Name}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// allClasses reads the constants from the source.
func allClasses(t testing.TB) []Class {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []Class
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name, err := strconv.Unquote(lit.Value); err == nil && traits[Class(name)] != (Traits{}) {
				out = append(out, Class(name))
			}
		}
		return true
	})
	if len(out) < 23 {
		t.Fatalf("only %d classes", len(out))
	}
	return out
}

// TestEveryClass drives every class through the whole stack, with and without
// another model behind it.
func TestEveryClass(t *testing.T) {
	t.Parallel()
	for _, class := range allClasses(t) {
		for _, behind := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", class, behind), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { driveClass(t, class, behind) })
			})
		}
	}
}

func driveClass(t *testing.T, class Class, behind bool) {
	first, second := &fake{do: failing(class)}, &fake{do: answering}
	fakes := []*fake{first}
	if behind {
		fakes = append(fakes, second)
	}
	c := clientOver(t, Config{}, fakes...)
	began := time.Now()
	reply, err := c.Complete(t.Context(), Request{})
	traits := class.Traits()

	wantCalls := 1
	switch {
	case traits.Retry:
		wantCalls = 3
	case traits.Reask:
		wantCalls = 2
	}
	if got := int(first.calls.Load()); got != wantCalls {
		t.Errorf("%d calls, want %d", got, wantCalls)
	}
	if behind && traits.Chain {
		if err != nil || reply.Model != "" && reply.Calls != wantCalls+1 || second.calls.Load() != 1 {
			t.Errorf("the next model: %+v, %v, %d calls", reply, err, second.calls.Load())
		}
	} else {
		fail := ours(err)
		if fail == nil || fail.Class != class || fail.Calls != wantCalls || second.calls.Load() != 0 {
			t.Fatalf("%+v, want %s after %d calls and no other model", err, class, wantCalls)
		}
		if fail.Breaker == "" {
			t.Error("it does not say how the breaker stood")
		}
	}
	if took := time.Since(began); took > c.cfg.Deadline {
		t.Errorf("took %v", took)
	}
	b := c.models[0]
	counts := b.breaker.two.Counts()
	switch {
	case traits.Failure && counts.TotalFailures != 3, traits.Success && int(counts.TotalSuccesses) != wantCalls,
		!traits.Failure && !traits.Success && counts.TotalFailures+counts.TotalSuccesses != 0:
		t.Errorf("the breaker counted %+v", counts)
	}
	fail, until := b.latch.now()
	latches := class == ClassQuota || class == ClassAuth || class == ClassNotFound || class == ClassConfig
	if (fail != nil) != latches {
		t.Errorf("latched: %v", fail)
	}
	if latches {
		latched(t, c, first, class, time.Until(until))
	}
}

// latched checks that nobody asks while a latch holds, and that one asks after it.
func latched(t *testing.T, c *Client, f *fake, class Class, left time.Duration) {
	t.Helper()
	before := f.calls.Load()
	if _, err := c.models[0].stack.Complete(t.Context(), Request{}); ClassOf(err) != class || ours(err).RetryAfter != left || f.calls.Load() != before {
		t.Errorf("while latched: %v, %d calls", err, f.calls.Load()-before)
	}
	pass(left)
	f.do = answering
	if _, err := c.Complete(t.Context(), Request{}); err != nil || f.calls.Load() != before+1 {
		t.Errorf("after it: %v, %d calls", err, f.calls.Load()-before)
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientOver(t, Config{}, &fake{do: hanging})
		began := time.Now()
		_, err := c.Complete(t.Context(), Request{})
		if ClassOf(err) != ClassTimeout || time.Since(began) != 20*time.Second {
			t.Errorf("ours: %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began = time.Now()
		if _, err := c.Complete(ctx, Request{}); !errors.Is(err, context.DeadlineExceeded) || ours(err) != nil || time.Since(began) != 3*time.Second {
			t.Errorf("the caller's: %v after %v", err, time.Since(began))
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := c.Complete(gone, Request{}); !errors.Is(err, context.Canceled) {
			t.Errorf("gone: %v", err)
		}
		if counts := c.models[0].breaker.two.Counts(); counts.TotalFailures != 2 {
			t.Errorf("callers who leave count for nothing: %+v", counts)
		}
	})
}

func TestAHangingModelLeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientOver(t, Config{}, &fake{do: hanging}, &fake{do: hanging}, &fake{do: answering})
		began := time.Now()
		if _, err := c.Complete(t.Context(), Request{}); err != nil || time.Since(began) != 17500*time.Millisecond { // an attempt, then three quarters of the rest
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestCacheAndSharing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, _ int, _ Request) (Reply, error) {
			return good(), sleep(ctx, time.Second)
		}}
		c := clientOver(t, Config{CacheEntries: 2}, f)
		var wg sync.WaitGroup
		var shared atomic.Int32
		first, leave := context.WithCancel(t.Context())
		for i := range 10 {
			if i == 1 {
				synctest.Wait() // the one who leaves has begun the call
			}
			wg.Go(func() {
				ctx := t.Context()
				if i == 0 {
					ctx = first
				}
				reply, err := c.Complete(ctx, Request{Key: "k"})
				if reply.Shared {
					shared.Add(1)
				}
				if err != nil && i != 0 {
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		synctest.Wait()
		leave() // whoever began the call: it goes on
		wg.Wait()
		if f.calls.Load() != 1 || shared.Load() < 8 {
			t.Errorf("%d calls, %d shared", f.calls.Load(), shared.Load())
		}
		again, err := c.Complete(t.Context(), Request{Key: "k"})
		if err != nil || !again.CacheHit || again.Calls != 0 || f.calls.Load() != 1 {
			t.Errorf("%+v, %v", again, err)
		}
		for _, other := range []string{"", "", "a", "b", "k"} { // a and b push k out
			if _, err := c.Complete(t.Context(), Request{Key: other}); err != nil {
				t.Fatal(err)
			}
		}
		if f.calls.Load() != 6 {
			t.Errorf("%d calls", f.calls.Load())
		}
		pass(c.cfg.CacheTTL)
		if reply, err := c.Complete(t.Context(), Request{Key: "k"}); err != nil || reply.CacheHit {
			t.Errorf("served from a cache that is too old: %v", err)
		}
		f.do = failing(ClassMalformed)
		for range 2 {
			if _, err := c.Complete(t.Context(), Request{Key: "new"}); err == nil {
				t.Error("a failure was answered")
			}
		}
		if f.calls.Load() != 11 {
			t.Errorf("a failure was kept: %d calls", f.calls.Load())
		}
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	limited := func(after time.Duration, times int) *fake {
		return &fake{do: func(_ context.Context, n int, _ Request) (Reply, error) {
			if n <= times {
				return Reply{}, &Error{Class: ClassRateLimited, RetryAfter: after}
			}
			return good(), nil
		}}
	}
	synctest.Test(t, func(t *testing.T) {
		f := limited(7*time.Second, 1)
		began := time.Now()
		if reply, err := clientOver(t, Config{}, f).Complete(t.Context(), Request{}); err != nil || time.Since(began) != 7*time.Second || reply.Calls != 2 {
			t.Errorf("it fits: %+v, %v after %v", reply, err, time.Since(began))
		}
		f = limited(time.Minute, 1)
		c := clientOver(t, Config{}, f)
		began = time.Now()
		if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassRateLimited || time.Since(began) != 0 {
			t.Errorf("it does not fit: %v after %v", err, time.Since(began))
		}
		if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassNotBefore || ours(err).RetryAfter != time.Minute || f.calls.Load() != 1 {
			t.Errorf("the gate: %v, %d calls", err, f.calls.Load())
		}
		pass(time.Minute)
		if _, err := c.Complete(t.Context(), Request{}); err != nil {
			t.Errorf("after the wait: %v", err)
		}
	})
}

func TestReask(t *testing.T) {
	t.Parallel()
	var asked []Request
	f := &fake{do: func(_ context.Context, n int, req Request) (Reply, error) {
		asked = append(asked, req)
		switch n {
		case 1:
			return Reply{}, &Error{Class: ClassTruncated}
		case 3:
			return Reply{Answer: Answer{Approved: true}}, nil
		}
		return good(), nil
	}}
	c := clientOver(t, Config{}, f)
	reply, err := c.Complete(t.Context(), Request{User: "u", MaxTokens: 100})
	if err != nil || !reply.Reasked || reply.Calls != 2 || asked[1].MaxTokens != 200 || asked[1].Complaint == "" || asked[1].User != "u" {
		t.Errorf("%+v, %v, %+v", reply, err, asked)
	}
	check := func(a Answer) error {
		if a.Confidence == 0 {
			return errors.New("no confidence")
		}
		return nil
	}
	if reply, err := c.Complete(t.Context(), Request{Check: check}); err != nil || !reply.Reasked || reply.Calls != 2 {
		t.Errorf("what the caller cannot use: %+v, %v", reply, err)
	}
	stubborn := clientOver(t, Config{}, &fake{do: func(context.Context, int, Request) (Reply, error) { return Reply{}, nil }})
	if _, err := stubborn.Complete(t.Context(), Request{Check: check}); ClassOf(err) != ClassInconsistent || ours(err).Calls != 2 {
		t.Errorf("twice: %v", err)
	}
}

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
		if ClassOf(err) != ClassBreakerOpen || ours(err).RetryAfter != 30*time.Second || f.calls.Load() != 5 || ours(err).Calls != 0 {
			t.Errorf("open: %v, %d calls", err, f.calls.Load())
		}
		pass(30*time.Second + time.Millisecond)
		f.do = hanging // the probe hangs: it must not keep the breaker half-open for ever
		done := make(chan error)
		go func() { _, err := c.Complete(t.Context(), Request{}); done <- err }()
		synctest.Wait()
		if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassBreakerOpen || ours(err).Breaker != "half-open" {
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

// Garbage that one caller provokes keeps nobody else from being judged.
func TestQualityLatchIsTheCallersOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(_ context.Context, _ int, req Request) (Reply, error) {
			if req.Caller == "mallory" {
				return Reply{}, &Error{Class: ClassMalformed}
			}
			return good(), nil
		}}
		c := clientOver(t, Config{}, f)
		for range 6 {
			if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); ClassOf(err) != ClassMalformed {
				t.Fatal(err)
			}
		}
		before := f.calls.Load()
		if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); ClassOf(err) != ClassQuality || !ClassQuality.Traits().FromCase || f.calls.Load() != before {
			t.Errorf("mallory: %v", err)
		}
		if _, err := c.Complete(t.Context(), Request{Caller: "alice"}); err != nil {
			t.Errorf("alice: %v", err)
		}
		if m := c.Stats().Models[0].Muted; m != 1 {
			t.Errorf("%d muted", m)
		}
		pass(time.Minute)
		f.do = answering
		for range 2 {
			if _, err := c.Complete(t.Context(), Request{Caller: "mallory"}); err != nil {
				t.Errorf("after a minute: %v", err)
			}
		}
	})
}

// One caller cannot take all places.
func TestBulkhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, _ int, _ Request) (Reply, error) { return good(), sleep(ctx, 5*time.Second) }}
		c := clientOver(t, Config{Parallel: 4}, f)
		var wg sync.WaitGroup
		var busy, fine atomic.Int32
		for range 20 {
			wg.Go(func() {
				if _, err := c.Complete(t.Context(), Request{Caller: "flood"}); ClassOf(err) == ClassBusy {
					busy.Add(1)
				} else if err == nil {
					fine.Add(1)
				}
			})
		}
		synctest.Wait()
		if f.calls.Load() != 2 {
			t.Errorf("the flood has %d places", f.calls.Load())
		}
		began := time.Now()
		if _, err := c.Complete(t.Context(), Request{Caller: "alice"}); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("alice: %v after %v", err, time.Since(began))
		}
		wg.Wait()
		if busy.Load() != 18 || fine.Load() != 2 {
			t.Errorf("%d busy, %d fine", busy.Load(), fine.Load())
		}
	})
}

// After a latch one asks; the others keep the old answer until he knows.
func TestOneProbesALatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: failing(ClassAuth)}
		c := clientOver(t, Config{}, f)
		if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassAuth {
			t.Fatal(err)
		}
		pass(c.cfg.ConfigLatch)
		f.do = func(ctx context.Context, _ int, _ Request) (Reply, error) { return good(), sleep(ctx, time.Second) }
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { _, _ = c.Complete(t.Context(), Request{}) })
		}
		wg.Wait()
		if f.calls.Load() != 2 {
			t.Errorf("%d calls", f.calls.Load())
		}
		// A cassette that lacks one answer may have the next.
		f.do = func(context.Context, int, Request) (Reply, error) {
			return Reply{}, &Error{Class: ClassConfig, Err: ErrCassetteMiss}
		}
		for range 3 {
			_, _ = c.Complete(t.Context(), Request{})
		}
		if f.calls.Load() != 5 {
			t.Errorf("a miss is remembered: %d calls", f.calls.Load())
		}
	})
}

// Retries and re-asking share one bound.
func TestCallsOfOneQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(_ context.Context, n int, _ Request) (Reply, error) {
			return Reply{}, &Error{Class: pick(n == 1, ClassMalformed, ClassNetwork)}
		}}
		if _, err := clientOver(t, Config{}, f).Complete(t.Context(), Request{}); ours(err).Calls != 3 || f.calls.Load() != 3 {
			t.Errorf("%v, %d calls", err, f.calls.Load())
		}
	})
}

// A failing endpoint is not asked several times as often as a working one.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: failing(ClassUpstream)}
		c := clientOver(t, Config{BreakerFailures: 1 << 20, BreakerMin: 1 << 20, Jitter: func() float64 { return 0 }}, f)
		for range 100 {
			_, _ = c.Complete(t.Context(), Request{})
		}
		if calls := f.calls.Load(); calls < 110 || calls > 125 {
			t.Errorf("%d calls for 100 questions", calls)
		}
		pass(2 * time.Minute)
		before := f.calls.Load()
		_, _ = c.Complete(t.Context(), Request{})
		if got := f.calls.Load() - before; got != 3 {
			t.Errorf("%d calls after a rest", got)
		}
	})
}

func TestUnknownModel(t *testing.T) {
	t.Parallel()
	f := &fake{do: answering}
	c := clientOver(t, Config{}, f, &fake{do: answering})
	if _, err := c.Complete(t.Context(), Request{Model: "nobody"}); ClassOf(err) != ClassConfig || f.calls.Load() != 0 {
		t.Errorf("%v", err)
	}
	if names := c.Names(); len(names) != 2 || names[0] != "m0" {
		t.Error(names)
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Models:    []Model{{ID: "a", BaseURL: "https://x.example"}, {ID: "a", BaseURL: "ftp://x"}, {Name: "t", ID: "t", BaseURL: "https://x.example", Thinking: "enormous"}},
		Fallbacks: []string{"nobody"}, Deadline: -1, BreakerShare: 2, Parallel: -3,
	})
	for _, want := range []string{"two models", "nobody", "Deadline", "BreakerShare", "Parallel", "ftp", "enormous"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "no model") {
		t.Errorf("%v", err)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	cost := 0.5
	c := clientOver(t, Config{}, &fake{do: func(_ context.Context, n int, _ Request) (Reply, error) {
		if n == 1 {
			return Reply{}, &Error{Class: ClassEmpty}
		}
		r := good()
		r.Usage, r.CostUSD, r.Lenient = &Usage{Prompt: 10, Completion: 2}, &cost, true
		return r, nil
	}})
	for range 2 {
		if _, err := c.Complete(t.Context(), Request{Key: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	s := c.Stats()
	if s.Questions != 2 || s.Replies != 2 || s.Calls != 2 || s.Reasked != 1 || s.CacheHits != 1 || s.PromptTokens != 10 || s.CompletionTokens != 2 || s.CostUSD != 0.5 || s.Lenient != 1 {
		t.Errorf("%+v", s)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// Whatever endpoints do, every question ends in time, calls are bounded, and what is
// well again is asked again.
func TestRandomBehaviour(t *testing.T) {
	t.Parallel()
	classes := allClasses(t)
	rapid.Check(t, func(rt *rapid.T) {
		behaviours := rapid.SliceOfN(rapid.SampledFrom(append([]Class{"answer", "hang"}, classes...)), 1, 40).Draw(rt, "behaviours")
		questions := rapid.IntRange(1, 12).Draw(rt, "questions")
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int32
			play := func(ctx context.Context, _ int, req Request) (Reply, error) {
				i := int(n.Add(1)) - 1
				if i >= len(behaviours) {
					return good(), nil
				}
				switch b := behaviours[i]; b {
				case "answer":
					return good(), nil
				case "hang":
					return hanging(ctx, 0, req)
				default:
					return Reply{}, &Error{Class: b, RetryAfter: time.Duration(i%3) * time.Second}
				}
			}
			a, b := &fake{do: play}, &fake{do: play}
			c := clientOver(t, Config{}, a, b)
			for range questions {
				began := time.Now()
				before := a.calls.Load() + b.calls.Load()
				_, err := c.Complete(t.Context(), Request{})
				if took := time.Since(began); took > 20*time.Second {
					t.Fatalf("%v: took %v", behaviours, took)
				}
				if calls := a.calls.Load() + b.calls.Load() - before; calls > 2*3 {
					t.Fatalf("%v: %d calls for one question", behaviours, calls)
				}
				if err != nil && ours(err) == nil {
					t.Fatalf("%v: %v is no failure of ours", behaviours, err)
				}
			}
			n.Store(int32(len(behaviours))) // all is well from here on
			pass(10*time.Minute + time.Second)
			var err error
			for range 2 { // the first may be the probe of the one and not of the other
				_, err = c.Complete(t.Context(), Request{})
			}
			if err != nil {
				t.Fatalf("%v: does not recover: %v", behaviours, err)
			}
		})
	})
}

func TestAThousandAtOnce(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, int, Request) (Reply, error){"dead": failing(ClassNetwork), "hanging": hanging} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{do: do}
			c := clientOver(t, Config{}, f)
			began := time.Now()
			var wg sync.WaitGroup
			for i := range 1000 {
				wg.Go(func() {
					if _, err := c.Complete(t.Context(), Request{Caller: fmt.Sprint(i % 50), Key: fmt.Sprint(i)}); ours(err) == nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			wg.Wait()
			if calls := f.calls.Load(); calls > 40 || time.Since(began) > 20*time.Second {
				t.Errorf("%s: %d calls, %v", name, calls, time.Since(began))
			}
		})
	}
}

// BenchmarkBreakerOpen measures what a decision pays while the breaker is open,
// beside the same stack around an endpoint that answers at once.
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
