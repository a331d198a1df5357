package llm

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// Unusable answers for one caller do not affect other callers.
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

func TestUnusableAnswersMuteACaller(t *testing.T) {
	t.Parallel()
	poor, fine, nothing := error(&Error{Class: ClassMalformed}), error(nil), error(&Error{Class: ClassNetwork})
	for name, tc := range map[string]struct {
		seen  []error
		muted bool
	}{
		"five":                    {[]error{poor, poor, poor, poor, poor}, false},
		"six":                     {[]error{poor, poor, poor, poor, poor, poor}, true},
		"half of six":             {[]error{fine, fine, fine, poor, poor, poor}, true},
		"fewer than half":         {[]error{fine, fine, fine, fine, poor, poor}, false},
		"failures are no answers": {[]error{poor, poor, poor, poor, poor, nothing, nothing}, false},
		"refusals are no garbage": {slices.Repeat([]error{&Error{Class: ClassRefusal}}, 30), false},
		"a good one ends it not":  {[]error{poor, poor, poor, poor, poor, fine}, false},
		"what is long ago is not": {append(slices.Repeat([]error{fine}, 20), slices.Repeat([]error{poor}, 9)...), false},
		"the last twenty count":   {append(slices.Repeat([]error{fine}, 100), slices.Repeat([]error{poor}, 10)...), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQuality()
			for _, err := range tc.seen {
				q.leave("c", false, err)
			}
			if _, kept := q.enter("c"); (kept != nil) != tc.muted {
				t.Errorf("muted: %v", kept)
			}
			if _, kept := q.enter(""); kept != nil {
				t.Errorf("another is: %v", kept)
			}
		})
	}
}

// Only one question probes, and an unsuccessful probe restarts the latch.
func TestAProbeOfQuality(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQuality()
		poor := &Error{Class: ClassMalformed}
		for range 6 {
			q.leave("c", false, poor)
		}
		pass(time.Minute)
		if probes, kept := q.enter("c"); !probes || kept != nil {
			t.Fatalf("%t, %v", probes, kept)
		}
		if _, kept := q.enter("c"); kept == nil || kept.RetryAfter <= 0 {
			t.Errorf("two probe: %v", kept)
		}
		q.leave("c", false, &Error{Class: ClassNetwork}) // a question from before the latch
		if _, kept := q.enter("c"); kept == nil {
			t.Error("two probe after a straggler")
		}
		q.leave("c", true, poor)
		if _, kept := q.enter("c"); kept == nil || kept.RetryAfter != time.Minute {
			t.Errorf("after a probe in vain: %v", kept)
		}
	})
}

// The number of records is limited, so invented callers cannot exhaust memory.
func TestCallersAreForgotten(t *testing.T) {
	t.Parallel()
	q := newQuality()
	for i := range 3 * maxCallers {
		q.leave(strconv.Itoa(i), false, &Error{Class: ClassMalformed})
	}
	if n := q.callers.Len(); n != maxCallers {
		t.Errorf("%d records", n)
	}
}
