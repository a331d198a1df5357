package llm

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Watch is called once when an outage begins and once when it ends, however many questions arrive in between.
func TestOutages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fails     *Error
		questions int // until the outage begins
		lasts     time.Duration
	}{
		"a breaker":     {&Error{Class: ClassNetwork, Message: "gone"}, 5, breakerOpen},
		"a wrong key":   {&Error{Class: ClassAuth, Message: "gone"}, 1, configLatch},
		"no credit":     {&Error{Class: ClassQuota, Message: "gone"}, 1, quotaLatch},
		"a long pause":  {&Error{Class: ClassRateLimited, Message: "gone", RetryAfter: time.Minute}, 1, time.Minute},
		"a short pause": {&Error{Class: ClassRateLimited, Message: "gone", RetryAfter: time.Second}, 0, 0},
		"a refusal":     {&Error{Class: ClassRefusal, Message: "gone"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var told []Outage
				var f fake
				f.do = func(context.Context, int, Request) (Reply, error) { said := *tc.fails; return Reply{}, &said }
				c := clientOver(t, Config{Retries: -1, Watch: func(o Outage) { told = append(told, o) }}, &f)
				ask := func(n int) {
					for range n {
						_, _ = c.Complete(t.Context(), Request{})
					}
				}
				if tc.questions == 0 {
					if ask(20); len(told) != 0 {
						t.Errorf("%+v", told)
					}
					return
				}
				if ask(tc.questions - 1); len(told) != 0 {
					t.Fatalf("too early: %+v", told)
				}
				ask(1)
				began := time.Now()
				if ask(10); len(told) != 1 || told[0].Model != "m0" || told[0].Over || !told[0].Since.Equal(began) || told[0].Cause.Message != "gone" {
					t.Fatalf("%+v", told)
				}
				if since := c.Stats().Models[0].DownSince; !since.Equal(began) {
					t.Errorf("the figures: since %v", since)
				}
				pass(tc.lasts + time.Millisecond)
				ask(1) // the endpoint still fails
				f.do = answering
				pass(tc.lasts + time.Millisecond)
				ask(10)
				if len(told) != 2 || !told[1].Over || !told[1].Since.Equal(began) || !c.Stats().Models[0].DownSince.IsZero() {
					t.Errorf("%+v", told)
				}
			})
		})
	}
}
