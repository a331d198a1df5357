package mcpface

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// However many clients subscribe to however much, looking takes one processor at most, and
// a part of its time.
func TestWatchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, resources, cost = 20, 50, 10 * time.Millisecond
		var at, most, looks atomic.Int64
		var running sync.WaitGroup
		turn := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		for range clients {
			w := newWatch(time.Second, func(context.Context, string) (string, error) {
				if now := at.Add(1); now > most.Load() {
					most.Store(now)
				}
				<-time.After(cost)
				at.Add(-1)
				looks.Add(1)
				return "the same", nil
			}, func([]byte) error { return nil })
			for i := range resources {
				w.subs[subscription{uri: fmt.Sprint(i)}] = &sight{mark: "the same", seen: true}
			}
			w.turn = turn
			running.Go(func() { w.run(ctx) })
		}
		const span = 10 * time.Minute
		<-time.After(span)
		cancel()
		running.Wait()
		if most.Load() != 1 {
			t.Errorf("%d looks at once", most.Load())
		}
		busy := time.Duration(looks.Load()) * cost
		if busy > span*2/3 || looks.Load() < 2*clients*resources {
			t.Errorf("%d looks, %s of %s", looks.Load(), busy, span)
		}
	})
}
