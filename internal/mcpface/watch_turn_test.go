package mcpface

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// slowStatus counts who looks at once.
type slowStatus struct {
	operation.Engine
	at, most, looks atomic.Int64
}

func (s *slowStatus) Status(context.Context, engine.Principal, string) (engine.StatusResult, error) {
	s.most.Store(max(s.most.Load(), s.at.Add(1)))
	<-time.After(10 * time.Millisecond)
	s.at.Add(-1)
	s.looks.Add(1)
	return engine.StatusResult{}, nil
}

// However many clients begin streams at once, and however much they subscribed to, looking
// takes one processor at most.
func TestWatchesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, resources = 20, 50
		e := &slowStatus{}
		face := &Face{cfg: Config{Engine: e}}
		var running sync.WaitGroup
		turn := make(chan struct{}, 1)
		for range clients {
			w := newWatch(face, nil)
			for i := range resources {
				w.subs[subscription{uri: fmt.Sprintf("%sinstances/%d", scheme, i)}] = &sight{}
			}
			w.turn = turn
			running.Go(func() {
				if !w.lookAtAll(t.Context()) {
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

// A review that expires changes without an event.
func TestTimeAloneIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		w := newWatch(nil, func([]byte) error { told++; return nil })
		s := &sight{instance: "wf-1", seq: 3, until: map[string]time.Time{"rev-1": time.Now().Add(time.Minute)}}
		w.subs[subscription{uri: "a"}] = s
		check := func(want int, wait time.Duration) {
			t.Helper()
			if got := w.tell(); got != wait || told != want {
				t.Errorf("told %d times, want %d; the next in %s, want %s", told, want, got, wait)
			}
		}
		check(0, time.Minute)
		<-time.After(time.Minute)
		check(1, time.Hour)
		w.note([]engine.Change{{WorkflowID: "wf-1", Seq: 4, ReviewID: "rev-2", ReviewUntil: time.Now().Add(time.Second)}, {WorkflowID: "wf-2", Seq: 9}})
		check(2, time.Second)
		w.note([]engine.Change{{WorkflowID: "wf-1", Seq: 4}})
		check(2, time.Second)
		w.note([]engine.Change{{WorkflowID: "wf-1", Seq: 5, ReviewID: "rev-2"}})
		check(3, time.Hour)
	})
}
