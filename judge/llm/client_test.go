package llm

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// fake is an innermost Completer with scripted behaviour.
type fake struct {
	calls atomic.Int32
	do    func(ctx context.Context, n int, req Request) (Reply, error)
}

func (f *fake) Complete(ctx context.Context, req Request) (Reply, error) {
	n := int(f.calls.Add(1))
	reply, err := f.do(ctx, n, req)
	reply.Calls = 1
	if fail := asError(err); fail != nil {
		err = fail.afterCalls(1)
	}
	return reply, err
}

// good returns a usable answer.
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

// clientOver returns a client whose models are fakes; the first one is the default. It uses only the timeouts
// of cfg.Models.
func clientOver(t testing.TB, cfg Config, fakes ...*fake) *Client {
	t.Helper()
	byName, preset := map[string]*fake{}, cfg.Models
	cfg.Models = nil
	for i, f := range fakes {
		name := fmt.Sprintf("m%d", i)
		m := Model{Name: name, ID: name}
		if i < len(preset) {
			m.Timeout = preset[i].Timeout
		}
		cfg.Models = append(cfg.Models, m)
		byName[name] = f
		if i > 0 {
			cfg.Fallbacks = append(cfg.Fallbacks, name)
		}
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func() float64 { return 1 }
	}
	c, err := newClient(cfg, func(m Model, _ Config) (innermost, error) {
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

// TestEveryClass tests every class with the whole stack, with and without a fallback model.
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
		if err != nil || reply.Calls != wantCalls+1 || second.calls.Load() != 1 {
			t.Errorf("the next model: %+v, %v, %d calls", reply, err, second.calls.Load())
		}
	} else {
		fail := asError(err)
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
	case traits.Failure && counts.TotalFailures != 1, traits.Success && counts.TotalSuccesses != 1, // one question, however many requests it took
		!traits.Failure && !traits.Success && counts.TotalFailures+counts.TotalSuccesses != 0:
		t.Errorf("the breaker counted %+v", counts)
	}
	fail, until := b.latch.current()
	latches := class == ClassQuota || class == ClassAuth || class == ClassNotFound || class == ClassConfig
	if (fail != nil) != latches {
		t.Errorf("latched: %v", fail)
	}
	if latches {
		latched(t, c, first, class, time.Until(until))
	}
}

// latched checks that no request is made while a latch is active, and that one is made afterwards.
func latched(t *testing.T, c *Client, f *fake, class Class, left time.Duration) {
	t.Helper()
	before := f.calls.Load()
	if _, err := c.models[0].stack.Complete(t.Context(), Request{}); ClassOf(err) != class || asError(err).RetryAfter != left || f.calls.Load() != before {
		t.Errorf("while latched: %v, %d calls", err, f.calls.Load()-before)
	}
	pass(left)
	f.do = answering
	if _, err := c.Complete(t.Context(), Request{}); err != nil || f.calls.Load() != before+1 {
		t.Errorf("after it: %v, %d calls", err, f.calls.Load()-before)
	}
}

// For any behaviour of the endpoints, every question ends in time, the number of calls is limited, and
// endpoints that recover are used again.
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
				if calls := a.calls.Load() + b.calls.Load() - before; calls > 2*(1+3) { // for each model, a probe may come first if its answers were late
					t.Fatalf("%v: %d calls for one question", behaviours, calls)
				}
				if err != nil && asError(err) == nil {
					t.Fatalf("%v: %v is no failure of ours", behaviours, err)
				}
			}
			n.Store(int32(len(behaviours))) // from here on, all answers are good
			pass(10*time.Minute + time.Second)
			var err error
			for range 2 { // the first question may only probe one of the models
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
	dead := failing(ClassNetwork)
	for name, do := range map[string]func(context.Context, int, Request) (Reply, error){
		"dead": dead, "hanging": hanging,
		"dead, with a thousand in line when the first call fails": func(ctx context.Context, n int, req Request) (Reply, error) {
			pass(time.Millisecond)
			return dead(ctx, n, req)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			f := &fake{do: func(ctx context.Context, n int, req Request) (Reply, error) {
				if deadline, _ := ctx.Deadline(); !time.Now().Before(deadline) {
					t.Errorf("%s: a request was made after its time, at %v", name, time.Since(began))
				}
				return do(ctx, n, req)
			}}
			c := clientOver(t, Config{}, f)
			var wg sync.WaitGroup
			for i := range 1000 {
				wg.Go(func() {
					if _, err := c.Complete(t.Context(), Request{Caller: fmt.Sprint(i % 50), Key: fmt.Sprint(i)}); asError(err) == nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			wg.Wait()
			if calls := f.calls.Load(); calls > 5+5+2*8 || time.Since(began) > 20*time.Second { // calls that wait for a retry, calls that open the breaker, and two rounds of all places
				t.Errorf("%s: %d calls, %v", name, calls, time.Since(began))
			}
		})
	}
}
