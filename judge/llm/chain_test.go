package llm

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAHangingModelLeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientOver(t, Config{}, &fake{do: hanging}, &fake{do: hanging}, &fake{do: answering})
		began := time.Now()
		if _, err := c.Complete(t.Context(), Request{}); err != nil || time.Since(began).Round(time.Second) != 13*time.Second { // a third for each
			t.Errorf("%v after %v", err, time.Since(began))
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

// A fallback does not shorten the time of a model with its own timeout, up to three quarters of the remaining
// time.
func TestASlowModelBeforeAFallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &fake{do: func(ctx context.Context, _ int, _ Request) (Reply, error) {
			return good(), sleepContext(ctx, 40*time.Second)
		}}
		behind := &fake{do: answering}
		c := clientOver(t, Config{Deadline: time.Minute, Models: []Model{{Timeout: 45 * time.Second}}}, slow, behind)
		if _, err := c.Complete(t.Context(), Request{}); err != nil || behind.calls.Load() != 0 {
			t.Errorf("%v, the one behind was asked %d times", err, behind.calls.Load())
		}
	})
}

func TestChainAsksEachOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fakes := []*fake{{do: failing(ClassQuota)}, {do: failing(ClassAuth)}, {do: failing(ClassNetwork)}}
		c := clientOver(t, Config{}, fakes...)
		_, err := c.Complete(t.Context(), Request{Model: "m1"}) // only m2 follows: m0 is not a fallback
		fail := asError(err)
		if fail == nil || fail.Class != ClassAuth || fail.Model != "m1" || fail.Calls != 4 || !strings.Contains(fail.Message, "also asked: m2 network") {
			t.Errorf("%+v", err)
		}
		for i, want := range []int32{0, 1, 3} {
			if got := fakes[i].calls.Load(); got != want {
				t.Errorf("m%d was asked %d times, want %d", i, got, want)
			}
		}
	})
}

func TestJoinErrorsChoosesTheClass(t *testing.T) {
	t.Parallel()
	e := func(c Class, after time.Duration) *Error { return &Error{Class: c, Calls: 1, RetryAfter: after} }
	for _, tc := range []struct {
		all   []*Error
		want  Class
		after time.Duration
	}{
		{[]*Error{e(ClassNetwork, 0)}, ClassNetwork, 0},
		{[]*Error{e(ClassNetwork, 0), e(ClassQuota, time.Minute)}, ClassNetwork, time.Minute},
		{[]*Error{e(ClassBreakerOpen, time.Second), e(ClassQuota, time.Minute)}, ClassQuota, time.Second},
		{[]*Error{e(ClassBreakerOpen, time.Minute), e(ClassNotBefore, time.Second)}, ClassBreakerOpen, time.Second},
		{[]*Error{e(ClassNetwork, 0), e(ClassBreakerOpen, time.Second)}, ClassNetwork, time.Second},
		// A failure that the case can cause must be reported, or the move might be allowed.
		{[]*Error{e(ClassNetwork, 0), e(ClassMalformed, 0)}, ClassMalformed, 0},
		{[]*Error{e(ClassBusy, time.Second), e(ClassNetwork, 0)}, ClassBusy, time.Second},
		{[]*Error{e(ClassNetwork, 0), e(ClassQuality, 0), e(ClassMalformed, 0)}, ClassQuality, 0},
	} {
		got := joinErrors(tc.all)
		if got.Class != tc.want || got.RetryAfter != tc.after || got.Calls != len(tc.all) {
			t.Errorf("%v: %+v, want %s after %v", tc.all, got, tc.want, tc.after)
		}
	}
}
