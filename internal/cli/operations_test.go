package cli

import (
	"cmp"
	"context"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// eventsOfTwo answers with pages of two events.
type eventsOfTwo struct{ last int64 }

func (e eventsOfTwo) Ask(_ context.Context, _ *operation.Operation, req any) (any, error) {
	r := req.(*engine.HistoryRequest)
	page := engine.TimelineResult{Events: []engine.TimelineEntry{}}
	for seq := r.AfterSeq + 1; seq <= e.last && page.Count < cmp.Or(min(2, r.Limit), 2); seq++ {
		page.Events, page.Count, page.NextAfter = append(page.Events, engine.TimelineEntry{Seq: seq}), page.Count+1, seq
	}
	if page.NextAfter == e.last {
		page.NextAfter = 0
	}
	return page, nil
}

// After a page that ends early, more events are requested.
func TestShortPagesOfEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, count int
		next         int64
	}{{0, 7, 0}, {5, 5, 5}, {7, 7, 0}} {
		res, err := fetchAll(t.Context(), eventsOfTwo{7}, operation.Timeline.Operation, &engine.HistoryRequest{Limit: c.limit})
		if err != nil {
			t.Fatal(err)
		}
		got := res.(engine.TimelineResult)
		if got.Count != c.count || len(got.Events) != c.count || got.NextAfter != c.next || got.Events[c.count-1].Seq != int64(c.count) {
			t.Errorf("of 7 events with limit %d: %+v", c.limit, got)
		}
	}
}
