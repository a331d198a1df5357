package llm

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestNotBefore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		says []Error // in sequence, at the same time
		left time.Duration
	}{
		{"a limit", []Error{{Class: ClassRateLimited, RetryAfter: time.Minute}}, time.Minute},
		{"overload", []Error{{Class: ClassOverloaded, RetryAfter: time.Minute}}, time.Minute},
		{"the longest counts", []Error{{Class: ClassRateLimited, RetryAfter: time.Minute}, {Class: ClassRateLimited, RetryAfter: time.Second}}, time.Minute},
		{"nobody is sent away for days", []Error{{Class: ClassRateLimited, RetryAfter: 72 * time.Hour}}, 10 * time.Minute},
		{"without saying when", []Error{{Class: ClassRateLimited}}, 0},
		{"of another kind", []Error{{Class: ClassQuota, RetryAfter: time.Minute}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls, together := 0, make(chan struct{})
				c := withNotBefore(CompleterFunc(func(context.Context, Request) (Reply, error) {
					calls++
					if calls > len(tc.says) {
						return good(), nil
					}
					said := tc.says[calls-1]
					<-together
					return Reply{}, &said
				}), &notBefore{})
				for range tc.says {
					go func() { _, _ = c.Complete(t.Context(), Request{}) }()
					synctest.Wait()
				}
				close(together)
				synctest.Wait()
				before := calls
				_, err := c.Complete(t.Context(), Request{})
				if tc.left == 0 {
					if err != nil {
						t.Errorf("kept away: %v", err)
					}
					return
				}
				if ClassOf(err) != ClassNotBefore || asError(err).RetryAfter != tc.left || calls != before {
					t.Errorf("%v, %d calls; want to be kept away for %v", err, calls-before, tc.left)
				}
				pass(tc.left)
				if _, err := c.Complete(t.Context(), Request{}); err != nil {
					t.Errorf("after it: %v", err)
				}
			})
		})
	}
}
