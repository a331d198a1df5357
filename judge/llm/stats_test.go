package llm

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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

// Only answers can lack usage; failures without an answer are not counted in UnknownUsage.
func TestUnknownUsage(t *testing.T) {
	t.Parallel()
	said := []error{&Error{Class: ClassAuth}, &Error{Class: ClassRefusal}, nil, context.Canceled}
	count := newCounters()
	for _, err := range said {
		count.call(Model{}, Reply{}, err, nil)
	}
	if s := count.copy(); s.Calls != 4 || s.UnknownUsage != 2 {
		t.Errorf("%+v", s)
	}
}

// Unusable answers are included in the costs, also of earlier attempts.
func TestStatsCountWastedCalls(t *testing.T) {
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
	_, err = c.Complete(t.Context(), Request{})
	if fail := asError(err); fail == nil || fail.Usage.Prompt != 1_000_000 || *fail.CostUSD != 3 {
		t.Errorf("%+v", fail)
	}
	if s := c.Stats(); s.Calls != 2 || s.PromptTokens != 1_000_000 || s.CompletionTokens != 500_000 || s.CostUSD != 3 || s.Errors[ClassMalformed] != 1 || s.UnknownUsage != 0 {
		t.Errorf("%+v", s)
	}
}

// A question's cost is the sum over its requests; it is unknown if the usage or price of one answer is
// unknown.
func TestBill(t *testing.T) {
	t.Parallel()
	used := func(n int) *Usage { return &Usage{Prompt: n, Completion: n, Cached: n, Reasoning: n} }
	usd := func(v float64) *float64 { return &v }
	type request struct {
		usage *Usage
		cost  *float64
		err   error
	}
	for _, tt := range []struct {
		name     string
		requests []request
		usage    *Usage
		cost     *float64
	}{
		{"one", []request{{used(1), usd(0.5), nil}}, used(1), usd(0.5)},
		{"an unusable one before it", []request{{used(2), usd(0.25), &Error{Class: ClassMalformed}}, {used(1), usd(0.5), nil}}, used(3), usd(0.75)},
		{"one that did not arrive", []request{{nil, nil, &Error{Class: ClassNetwork}}, {used(1), usd(0.5), nil}}, used(1), usd(0.5)},
		{"no price", []request{{used(1), nil, nil}}, used(1), nil},
		{"no usage", []request{{nil, nil, &Error{Class: ClassMalformed}}, {used(1), usd(0.5), nil}}, nil, nil},
	} {
		count := newCounters()
		next := withBill(CompleterFunc(func(ctx context.Context, _ Request) (Reply, error) {
			for _, r := range tt.requests {
				m := Model{}
				if r.cost != nil {
					m.PromptUSD, m.CompletionUSD = usd(*r.cost*1e6/float64(r.usage.Prompt)), usd(0)
				}
				reply, err := Reply{Usage: r.usage, CostUSD: r.cost}, r.err
				if err != nil {
					err = asError(err).withChange(func(e *Error) { e.Usage = r.usage })
				}
				count.call(m, reply, err, billOf(ctx))
			}
			return good(), nil
		}))
		got, _ := next.Complete(t.Context(), Request{})
		if diff := cmp.Diff([]any{tt.usage, tt.cost}, []any{got.Usage, got.CostUSD}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
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
		for range 200 { // the last 128 took 73 ms to 200 ms
			_, _ = c.Complete(t.Context(), Request{})
		}
		if m := c.Stats().Models[0]; m.P50 != 136*time.Millisecond || m.P95 != 193*time.Millisecond {
			t.Errorf("p50 %v, p95 %v", m.P50, m.P95)
		}
	})
}
