package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// TestTimeline lists every kind of event, while History lists only decisions.
func TestTimeline(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		l := newLived(t, s)
		type line struct {
			Seq, Revision int64
			Kind          record.Kind
			Action, To    string
			Version       int
			Restores      int64
		}
		want := []line{
			{1, 1, record.Started, "", "a", 1, 0},
			{2, 2, record.Advanced, "go", "b", 1, 0},
			{3, 2, record.Refused, "nowhere", "b", 1, 0},
			{4, 2, record.Checkpointed, "", "b", 1, 0},
			{5, 2, record.Refused, "nowhere", "b", 1, 0},
			{6, 3, record.Advanced, "go", "c", 1, 0},
			{7, 4, record.RolledBack, "", "b", 1, 2},
			{8, 5, record.Advanced, "back", "a", 1, 0},
			{9, 6, record.Undone, "back", "b", 1, 4},
			{10, 7, record.Migrated, "", "bb", 2, 0},
			{11, 8, record.Advanced, "go", "c", 2, 0},
		}
		list := func(req engine.HistoryRequest) (engine.TimelineResult, []line) {
			t.Helper()
			req.ID = l.id
			r, err := l.Timeline(t.Context(), agent, req)
			if err != nil {
				t.Fatal(err)
			}
			var got []line
			for _, e := range r.Events {
				got = append(got, line{e.Seq, e.Revision, e.Kind, e.Action, e.To, e.Version, e.Restores})
			}
			return r, got
		}
		r, got := list(engine.HistoryRequest{})
		if diff := cmp.Diff(want, got); diff != "" || r.NextAfter != 0 || r.Count != 11 {
			t.Errorf("all, %d, next %d (-want +got):\n%s", r.Count, r.NextAfter, diff)
		}
		if e := r.Events[9]; e.FromVersion != 1 || e.Principal != operator.ID || e.Status != record.Running {
			t.Errorf("the migration: %+v", e)
		}
		if r.Events[3].CheckpointID == "" || r.Events[3].CheckpointID != r.Events[6].CheckpointID {
			t.Errorf("the checkpoint: %+v and %+v", r.Events[3], r.Events[6])
		}
		page, got := list(engine.HistoryRequest{AfterSeq: 2, Limit: 4})
		if diff := cmp.Diff(want[2:6], got); diff != "" || page.NextAfter != 6 {
			t.Errorf("a page, next %d (-want +got):\n%s", page.NextAfter, diff)
		}
		if page, got = list(engine.HistoryRequest{AfterSeq: 6, Limit: 5}); len(got) != 5 || page.NextAfter != 0 {
			t.Errorf("the last page: %d, next %d", len(got), page.NextAfter)
		}
		if _, got = list(engine.HistoryRequest{Until: engine.When{At: r.Events[3].Time}}); len(got) != 4 {
			t.Errorf("up to a moment: %d", len(got))
		}
		_, err := l.Timeline(t.Context(), other, engine.HistoryRequest{ID: l.id})
		wantCode(t, err, engine.CodeUnknownInstance)

		// A page of decisions includes the total of all pages.
		for _, tt := range []struct {
			req          engine.HistoryRequest
			count, total int
		}{
			{engine.HistoryRequest{}, 7, 7},
			{engine.HistoryRequest{Limit: 2}, 2, 7},
			{engine.HistoryRequest{AfterSeq: 5, Limit: 2}, 2, 7},
			{engine.HistoryRequest{AfterSeq: 100}, 0, 7},
			{engine.HistoryRequest{Limit: 1, Until: engine.When{At: r.Events[3].Time}}, 1, 3},
		} {
			tt.req.ID = l.id
			h, err := l.History(t.Context(), agent, tt.req)
			if err != nil || h.Count != tt.count || h.Total == nil || *h.Total != tt.total {
				t.Errorf("%+v: %d of %v, %v", tt.req, h.Count, h.Total, err)
			}
		}
		_, read, err := l.BeginBulkRead(t.Context(), agent)
		if err != nil {
			t.Fatal(err)
		}
		defer read.End()
		for n, want := range map[int]bool{1000: true, 1001: false} {
			if got, err := read.Count(t.Context(), n); err != nil || (got != nil) != want || want && *got != n {
				t.Errorf("of %d: %v, %v", n, got, err)
			}
		}
	})
}
