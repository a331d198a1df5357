package review

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// waitingRoom is a server with reviews set by a test.
type waitingRoom struct {
	sync.Mutex
	all   []engine.ReviewSummary
	fails error
}

func (r *waitingRoom) Ask(_ context.Context, op *operation.Operation, req any) (any, error) {
	r.Lock()
	defer r.Unlock()
	switch req := req.(type) {
	case *engine.ReviewsRequest:
		open := slices.DeleteFunc(slices.Clone(r.all), func(s engine.ReviewSummary) bool { return s.Status != record.ReviewOpen })
		if req.Cursor == "" && len(open) > 1 { // one review per page
			return engine.ReviewsResult{Reviews: open[:1], NextCursor: open[0].ID}, r.fails
		}
		if req.Cursor != "" {
			open = open[1:]
		}
		return engine.ReviewsResult{Reviews: open}, r.fails
	case *operation.IDRequest:
		for _, s := range r.all {
			if s.ID == req.ID {
				return engine.ReviewView{ReviewSummary: s}, r.fails
			}
		}
		return engine.ReviewView{}, &engine.Error{Code: engine.CodeUnknownReview}
	}
	return nil, fmt.Errorf("asked for %s", op.ID)
}

// Each review is reported once when opened, raised or closed, despite failures in between.
func TestReviewWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told, troubles []string
		room := &waitingRoom{all: []engine.ReviewSummary{{ID: "rev-1", Status: record.ReviewOpen}, {ID: "rev-2", Status: record.ReviewOpen, Priority: record.PriorityLow}}}
		w := &reviewWatch{at: room, report: func(event string, r engine.ReviewSummary) {
			room.Lock()
			defer room.Unlock()
			told = append(told, event+" "+r.ID)
		}}
		if err := w.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		room.Lock()
		defer room.Unlock()
		go w.follow(ctx, time.Second, func(err error) {
			room.Lock()
			defer room.Unlock()
			troubles = append(troubles, err.Error())
		})
		tick := func(want ...string) { // the test may change the room in between
			t.Helper()
			room.Unlock()
			time.Sleep(time.Second) //nolint:forbidigo // the synctest clock
			synctest.Wait()
			room.Lock()
			if !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
			told = nil
		}
		tick("opened rev-1", "opened rev-2")
		tick()
		room.all[1].Priority = record.PriorityUrgent
		room.all = append(room.all, engine.ReviewSummary{ID: "rev-3", Status: record.ReviewOpen})
		tick("raised rev-2", "opened rev-3")
		room.fails = errors.New("gone")
		room.all[0].Status = record.ReviewResolved
		tick()
		tick()
		room.fails = nil
		tick("closed rev-1")
		room.all = nil
		tick()
		tick()
		if len(troubles) != 1 {
			t.Errorf("troubles: %q", troubles)
		}
		cancel()
	})
}
