package llm

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// After a latch, one caller probes; the others get the old failure until it has finished.
func TestOneProbesALatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: failing(ClassAuth)}
		c := clientOver(t, Config{}, f)
		if _, err := c.Complete(t.Context(), Request{}); ClassOf(err) != ClassAuth {
			t.Fatal(err)
		}
		pass(configLatch)
		f.do = func(ctx context.Context, _ int, _ Request) (Reply, error) {
			return good(), sleepContext(ctx, time.Second)
		}
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

// Each class is remembered for its own time, or not at all.
func TestLatch(t *testing.T) {
	t.Parallel()
	for _, class := range allClasses(t) {
		want := map[Class]time.Duration{ClassQuota: 10 * time.Minute, ClassAuth: time.Minute, ClassNotFound: time.Minute, ClassConfig: time.Minute}[class]
		synctest.Test(t, func(t *testing.T) {
			l := &latch{}
			l.leave(false, &Error{Class: class, Message: "m", Calls: 1})
			_, kept := l.enter()
			switch {
			case want == 0 && kept != nil:
				t.Errorf("%s is remembered", class)
			case want > 0 && (kept == nil || kept.Class != class || kept.RetryAfter != want || kept.Calls != 0 || !strings.Contains(kept.Message, "m (known from an earlier call")):
				t.Errorf("%s: %+v", class, kept)
			}
			l = &latch{}
			l.leave(false, &Error{Class: class}) // the question was invalid and was not sent
			if _, kept := l.enter(); kept != nil {
				t.Errorf("%s is remembered although nobody was asked", class)
			}
		})
	}
}

// Only the probe's own end ends the probe, not that of an earlier question.
func TestLateReplyEndsNoProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &latch{}
		l.leave(false, &Error{Class: ClassAuth, Calls: 1})
		pass(time.Minute)
		if probes, kept := l.enter(); !probes || kept != nil {
			t.Fatalf("%t, %v", probes, kept)
		}
		l.leave(false, context.Canceled) // the earlier question
		if _, kept := l.enter(); kept == nil {
			t.Error("two probe")
		}
		l.leave(true, context.Canceled) // the probe was cancelled, so the next question probes
		if probes, _ := l.enter(); !probes {
			t.Error("nobody probes any more")
		}
		l.leave(true, &Error{Class: ClassAuth, Calls: 1})
		if _, kept := l.enter(); kept == nil || kept.RetryAfter != time.Minute {
			t.Errorf("after a probe in vain: %+v", kept)
		}
		pass(time.Minute)
		if probes, _ := l.enter(); !probes {
			t.Error("nobody probes any more")
		}
		l.leave(true, nil)
		for range 2 {
			if probes, kept := l.enter(); probes || kept != nil {
				t.Errorf("after one that was answered: probes %t, %v", probes, kept)
			}
		}
	})
}
