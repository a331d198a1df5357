package llm

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A background question takes no place that a decision needs: it is given up at once, by the first
// that finds none, and none waits in line.
func TestBackgroundMakesWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{do: func(ctx context.Context, _ int, req Request) (Reply, error) {
			if req.Background {
				return good(), sleepContext(ctx, time.Minute)
			}
			return good(), sleepContext(ctx, time.Second)
		}}
		c := clientOver(t, Config{Parallel: 2, Deadline: 5 * time.Minute}, f)
		began := time.Now()
		var all sync.WaitGroup
		ask := func(caller string, behind bool, want Class, after time.Duration) {
			all.Go(func() {
				_, err := c.Complete(t.Context(), Request{User: caller, Caller: caller, Background: behind})
				if took := time.Since(began); ClassOf(err) != want || took != after {
					t.Errorf("%s: %v after %v, want %q after %v", caller, err, took, want, after)
				}
			})
			synctest.Wait()
		}
		ask("canary", true, ClassBusy, 0)   // given up for the third
		ask("another", true, ClassBusy, 0)  // one at a time
		ask("a", false, "", time.Second)    // a place is free
		ask("b", false, "", time.Second)    // the canary's
		ask("canaries", true, ClassBusy, 0) // no place is free, and none is waited for
		for i := range 2 {
			ask(fmt.Sprint("later ", i), false, "", 2*time.Second)
		}
		all.Wait()
		began = time.Now()
		ask("canary", true, "", time.Minute) // nobody else asks
		all.Wait()
	})
}
