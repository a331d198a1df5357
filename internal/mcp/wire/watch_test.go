package wire

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// slowLooks counts concurrent looks.
type slowLooks struct {
	Resources
	at, most, looks atomic.Int64
}

func (s *slowLooks) Look(context.Context, string) (ResourcePosition, error) {
	s.most.Store(max(s.most.Load(), s.at.Add(1)))
	<-time.After(10 * time.Millisecond)
	s.at.Add(-1)
	s.looks.Add(1)
	return ResourcePosition{}, nil
}

// Looks use at most one processor, whatever the number of clients that start streams and of their subscriptions.
func TestWatchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, resources = 20, 50
		e := &slowLooks{}
		var running sync.WaitGroup
		turn := make(chan struct{}, 1)
		for range clients {
			w := newWatch(e, 0, nil)
			for i := range resources {
				w.subs[subscription{uri: fmt.Sprint("resource ", i)}] = &subscriptionState{}
			}
			w.checkLock = turn
			running.Go(func() {
				if !w.checkAll(t.Context()) {
					t.Error("a look failed")
				}
			})
		}
		running.Wait()
		if e.most.Load() != 1 || e.looks.Load() != clients*resources {
			t.Errorf("%d looks, %d at once", e.looks.Load(), e.most.Load())
		}
	})
}

// A review that expires is a change without an event.
func TestTimeAloneIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		w := newWatch(nil, 0, func([]byte) error { told++; return nil })
		s := &subscriptionState{ResourcePosition: ResourcePosition{Instance: "wf-1", Seq: 3, Until: map[string]time.Time{"rev-1": time.Now().Add(time.Minute)}}}
		w.subs[subscription{uri: "a"}] = s
		check := func(want int, wait time.Duration) {
			t.Helper()
			if got := w.announce(); got != wait || told != want {
				t.Errorf("told %d times, want %d; the next in %s, want %s", told, want, got, wait)
			}
		}
		check(0, time.Minute)
		<-time.After(time.Minute)
		check(1, time.Hour)
		w.note([]engine.Change{{Instance: "wf-1", Seq: 4, ReviewID: "rev-2", ReviewUntil: time.Now().Add(time.Second)}, {Instance: "wf-2", Seq: 9}})
		check(2, time.Second)
		w.note([]engine.Change{{Instance: "wf-1", Seq: 4}})
		check(2, time.Second)
		w.note([]engine.Change{{Instance: "wf-1", Seq: 5, ReviewID: "rev-2"}})
		check(3, time.Hour)
	})
}
