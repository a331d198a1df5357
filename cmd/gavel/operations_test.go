package main

import (
	"cmp"
	"context"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Every entry of the table belongs to a command, and names fields that its operation has.
func TestOperationCommands(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&commands{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]bool{}
	for _, leaf := range parser.Model.Leaves(false) {
		commands[commandName(leaf)] = true
	}
	for words, spec := range operationCommands {
		if !commands[words] {
			t.Errorf("there is no command %q", words)
		}
		names := slices.Concat(spec.positional, spec.without)
		for _, m := range []map[string]string{spec.fixed, spec.usual, spec.flags} {
			for name := range m {
				names = append(names, name)
			}
		}
		for _, name := range names {
			if !slices.ContainsFunc(spec.op.Fields, func(f operation.Field) bool { return f.Name == name }) {
				t.Errorf("%s: %s has no field %q", words, spec.op.ID, name)
			}
		}
		if spec.rows != nil && spec.none == nil {
			t.Errorf("%s: nothing to say of an empty list", words)
		}
	}
}

func TestRequestsOfCommandLines(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	least, seven := 0.5, int64(7)
	for name, c := range map[string]struct {
		args []string
		of   func(*commands) *operationFlags
		want any
	}{
		"values": {
			[]string{"history", "search", "--since", "24h", "--kind", "refused,escalated", "--min-confidence", "0.5", "--decided-by", "model", "--after", "c", "--instance", "wf-1"},
			func(c *commands) *operationFlags { return &c.History.Search.operationFlags },
			&engine.DecisionsRequest{Cursor: "c", Query: store.DecisionQuery{
				Instance: "wf-1", DecidedBy: judge.LayerModel, MinConfidence: &least, Since: now.Add(-24 * time.Hour), Kinds: []record.Kind{record.Refused, record.Escalated},
			}},
		},
		"documents": {
			[]string{"advance", "wf-1", "submit", "--data", `{"n": 1.50}`, "--expected-revision", "7"},
			func(c *commands) *operationFlags { return &c.Advance.operationFlags },
			&engine.AdvanceRequest{ID: "wf-1", Action: "submit", Data: document.Known([]byte(`{"n":1.50}`)), ExpectedRevision: &seven},
		},
		"what the command implies, and JSON of any kind": {
			[]string{"review", "approve", "rev-1", "--reason", "Seen.", "--output", `"paid"`},
			func(c *commands) *operationFlags { return &c.Review.Approve.operationFlags },
			&engine.ResolveRequest{ID: "rev-1", Decision: judge.Approve, Reason: "Seen.", Output: []byte(`"paid"`)},
		},
		"defaults": {
			[]string{"review", "list"},
			func(c *commands) *operationFlags { return &c.Review.List.operationFlags },
			&engine.ReviewsRequest{Status: "open"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cmds commands
			if _, _, err := parseArguments(&cmds, c.args, io.Discard, io.Discard); err != nil {
				t.Fatal(err)
			}
			got, err := c.of(&cmds).request(now)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(c.want, got, gocmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

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
		res, err := askWhole(t.Context(), eventsOfTwo{7}, operation.Timeline.Operation, &engine.HistoryRequest{Limit: c.limit})
		if err != nil {
			t.Fatal(err)
		}
		got := res.(engine.TimelineResult)
		if got.Count != c.count || len(got.Events) != c.count || got.NextAfter != c.next || got.Events[c.count-1].Seq != int64(c.count) {
			t.Errorf("of 7 events with limit %d: %+v", c.limit, got)
		}
	}
}
