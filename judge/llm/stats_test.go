package llm

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"
)

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

// Only an answer can have usage: a dead endpoint has nothing to be unknown.
func TestUnknownUsage(t *testing.T) {
	t.Parallel()
	said := []error{&Error{Class: ClassAuth}, &Error{Class: ClassRefusal}, nil, context.Canceled}
	count := newCounters()
	for _, err := range said {
		count.call(Model{}, Reply{}, err)
	}
	if s := count.copy(); s.Calls != 4 || s.UnknownUsage != 2 {
		t.Errorf("%+v", s)
	}
}

// Unusable answers cost as well, and so do requests that nobody waited for.
func TestStatsOfWhatWasInVain(t *testing.T) {
	t.Parallel()
	price := 2.0
	f := &fake{do: func(context.Context, int, Request) (Reply, error) {
		return Reply{}, &Error{Class: ClassMalformed, Usage: &Usage{Prompt: 500_000, Completion: 250_000}}
	}}
	c, err := newClient(Config{Models: []Model{{ID: "m", PromptUSD: &price, CompletionUSD: &price}}}, func(Model, Config) (innermost, error) {
		return innermost{f, func(next Completer) Completer { return next }, func() Capabilities { return Capabilities{} }, "h"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Complete(t.Context(), Request{})
	if s := c.Stats(); s.Calls != 2 || s.PromptTokens != 1_000_000 || s.CompletionTokens != 500_000 || s.CostUSD != 3 || s.Errors[ClassMalformed] != 1 || s.UnknownUsage != 0 {
		t.Errorf("%+v", s)
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, n int, _ Request) (Reply, error) {
			return good(), sleepContext(ctx, time.Duration(n)*time.Millisecond)
		}}
		c := clientOver(t, Config{}, f)
		if m := c.Stats().Models[0]; m.P50 != 0 || m.P95 != 0 || m.LastError != nil {
			t.Errorf("before any: %+v", m)
		}
		for range 200 { // 73 ms to 200 ms are the last 128
			_, _ = c.Complete(t.Context(), Request{})
		}
		if m := c.Stats().Models[0]; m.P50 != 136*time.Millisecond || m.P95 != 193*time.Millisecond {
			t.Errorf("p50 %v, p95 %v", m.P50, m.P95)
		}
	})
}
