package llm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCacheAndSharing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, _ int, _ Request) (Reply, error) {
			return good(), sleepContext(ctx, time.Second)
		}}
		c := clientOver(t, Config{CacheEntries: 2}, f)
		var wg sync.WaitGroup
		var shared atomic.Int32
		first, leave := context.WithCancel(t.Context())
		for i := range 10 {
			if i == 1 {
				synctest.Wait() // the caller that leaves has started the call
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
		leave() // the call continues without the caller that started it
		wg.Wait()
		if f.calls.Load() != 1 || shared.Load() < 8 {
			t.Errorf("%d calls, %d shared", f.calls.Load(), shared.Load())
		}
		again, err := c.Complete(t.Context(), Request{Key: "k"})
		if err != nil || !again.CacheHit || again.Calls != 0 || f.calls.Load() != 1 {
			t.Errorf("%+v, %v", again, err)
		}
		for _, other := range []string{"", "", "a", "b", "k"} { // a and b evict k
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

// All waiting callers get the failure and its cost; the next question is asked anew.
func TestSharedFailures(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, int, Request) (Reply, error){
		"fails": func(ctx context.Context, _ int, _ Request) (Reply, error) {
			if err := sleepContext(ctx, time.Second); err != nil {
				return Reply{}, err
			}
			return Reply{}, &Error{Class: ClassFilter}
		},
		"hangs": hanging,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{do: do}
				c := clientOver(t, Config{}, f)
				began := time.Now()
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						_, err := c.Complete(t.Context(), Request{Key: "k"})
						if fail := asError(err); fail == nil || fail.Calls != int(f.calls.Load()) || fail.Model != "m0" {
							t.Errorf("%+v", err)
						}
					})
				}
				wg.Wait()
				if time.Since(began) > c.cfg.Deadline {
					t.Errorf("took %v", time.Since(began))
				}
				before := f.calls.Load()
				f.do = answering
				if reply, err := c.Complete(t.Context(), Request{Key: "k"}); err != nil || reply.CacheHit || f.calls.Load() != before+1 {
					t.Errorf("the next: %+v, %v", reply, err)
				}
				if s := c.Stats(); s.Calls != int(f.calls.Load()) || s.Questions != 6 || s.Replies != 1 {
					t.Errorf("%+v, %d calls", s, f.calls.Load())
				}
			})
		})
	}
}

// If all callers have left, the call still ends and is counted.
func TestSharedCallEndsWithItsLastCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: hanging}
		c := clientOver(t, Config{}, f)
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		began := time.Now()
		if _, err := c.Complete(ctx, Request{Key: "k"}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		pass(c.cfg.Deadline - time.Second)
		synctest.Wait() // the bubble cannot end while a goroutine remains
		if s := c.Stats(); s.Calls != 1 || s.Models[0].LastError == nil {
			t.Errorf("%+v", s)
		}
	})
}

// A panic reaches the calling goroutine, which may recover; it does not end the process.
func TestPanicReachesTheCaller(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		c := clientOver(t, Config{}, &fake{do: answering})
		ask := func(check func(Answer) error) (said any, err error) {
			defer func() { said = recover() }()
			_, err = c.Complete(t.Context(), Request{Key: key, Check: check})
			return nil, err
		}
		if said, _ := ask(func(Answer) error { panic("in the check") }); !strings.Contains(fmt.Sprint(said), "in the check") {
			t.Errorf("key %q: %v", key, said)
		}
		if said, err := ask(nil); said != nil || err != nil {
			t.Errorf("key %q, after it: %v, %v", key, said, err)
		}
	}
}

// Callers that share a call may modify their replies.
func TestSharedRepliesShareNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientOver(t, Config{CacheTTL: -1}, &fake{do: func(ctx context.Context, _ int, _ Request) (Reply, error) {
			return Reply{Answer: Answer{Violations: []string{"v"}}}, sleepContext(ctx, time.Second)
		}})
		var replies [2]Reply
		var wg sync.WaitGroup
		for i := range replies {
			wg.Go(func() { replies[i], _ = c.Complete(t.Context(), Request{Key: "k"}) })
		}
		wg.Wait()
		if replies[0].Shared == replies[1].Shared {
			t.Error("nobody shared")
		}
		replies[0].Answer.Violations[0] = "changed"
		if replies[1].Answer.Violations[0] != "v" {
			t.Error("what one does to his reply the other sees")
		}
	})
}
