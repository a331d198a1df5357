package llm

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A background question does not block decisions: it is cancelled by the first one that finds no free place,
// and never waits in line.
func TestBackgroundYields(t *testing.T) {
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
		ask("canary", true, ClassBusy, 0)   // cancelled for b
		ask("another", true, ClassBusy, 0)  // only one may run
		ask("a", false, "", time.Second)    // a place is free
		ask("b", false, "", time.Second)    // takes the canary's place
		ask("canaries", true, ClassBusy, 0) // no place is free, and it does not wait
		for i := range 2 {
			ask(fmt.Sprint("later ", i), false, "", 2*time.Second)
		}
		all.Wait()
		began = time.Now()
		ask("canary", true, "", time.Minute) // there are no other questions
		all.Wait()
	})
}
