package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
)

// TestListsOfFailedAndOfChains: filtered lists return the matching runs page by page.
func TestListsOfFailedAndOfChains(t *testing.T) {
	failing := effectsFunc(func(_ context.Context, c Command) Outcome {
		if strings.Contains(c.Run, "bad") {
			return Outcome{Err: &StepError{Code: CodeToolError, Message: "no", Final: true}}
		}
		return Outcome{Value: "ok"}
	})
	folder := t.TempDir()
	r := openRuns(t, folder, failing)
	chains := map[string]*Definition{}
	for _, name := range []string{"a_b", "axb", "c"} { // in the pattern that lists owners, _ matches any character
		d, err := Parse("chain.yaml", []byte("name: "+name+"\nsteps: [{id: s, type: tool, server: s, action: look}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		chains[name] = d
	}
	start := func(runs ...string) {
		t.Helper()
		for i, run := range runs {
			name, who, _ := strings.Cut(strings.SplitN(run, "-", 3)[1], ".")
			if _, err := r.Start(t.Context(), StartRequest{Run: run, Definition: chains[name], Principal: engine.Principal{ID: who, Role: engine.RoleAgent}}); err != nil {
				t.Fatal(i, err)
			}
			waitRun(t, r, run)
			ended := time.Now().UnixMilli() // lists are ordered by the clock in milliseconds
			await(t, "the next millisecond", func() (int64, bool) { now := time.Now().UnixMilli(); return now, now > ended })
		}
	}
	start("r1-a_b.ann-bad", "r2-axb.ann-good", "r3-c.ben-bad")
	r.Close()
	r = openRuns(t, folder, failing)
	defer r.Close()
	start("r4-a_b.ben-bad", "r5-a_b.ann-good", "r6-c.ann-bad", "r7-a_b.ann-bad")
	s := NewService(ServiceConfig{Runs: r, Chains: func() map[string]*Definition { return chains }})
	for name, tc := range map[string]struct {
		by   engine.Principal
		req  ListRuns
		want string
	}{
		"all":                    {operator, ListRuns{}, "r7 r6 r5 r4 r3 r2 r1"},
		"failed":                 {operator, ListRuns{Status: StatusFailed}, "r7 r6 r4 r3 r1"},
		"done":                   {operator, ListRuns{Status: StatusDone}, "r5 r2"},
		"of a chain":             {operator, ListRuns{Chain: "a_b"}, "r7 r5 r4 r1"},
		"of a chain, failed":     {operator, ListRuns{Chain: "a_b", Status: StatusFailed}, "r7 r4 r1"},
		"of another":             {operator, ListRuns{Chain: "axb"}, "r2"},
		"of no chain":            {operator, ListRuns{Chain: "a"}, ""},
		"an agent's":             {engine.Principal{ID: "ann", Role: engine.RoleAgent}, ListRuns{}, "r7 r6 r5 r2 r1"},
		"an agent's failed":      {engine.Principal{ID: "ann", Role: engine.RoleAgent}, ListRuns{Status: StatusFailed}, "r7 r6 r1"},
		"an agent's, of a chain": {engine.Principal{ID: "ben", Role: engine.RoleAgent}, ListRuns{Chain: "a_b"}, "r4"},
	} {
		for _, limit := range []int{1, 2, 50} {
			var got []string
			for req := tc.req; ; {
				req.Limit = limit
				page, err := s.ListRuns(t.Context(), tc.by, req)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range page.Runs {
					got = append(got, v.Run[:2])
					if failed := strings.HasSuffix(v.Run, "bad"); failed != (v.Status == StatusFailed) || failed && (v.Error == nil || v.Error.Code != CodeToolError || v.Error.Step != "s") {
						t.Errorf("%s is %s, %v", v.Run, v.Status, v.Error)
					}
				}
				if req.Cursor = page.NextCursor; req.Cursor == "" {
					break
				}
			}
			if diff := cmp.Diff(strings.Fields(tc.want), got); diff != "" && (tc.want != "" || got != nil) {
				t.Errorf("%s, %d at once: %s", name, limit, diff)
			}
		}
	}
	if v, err := s.ReadRun(t.Context(), operator, "r7-a_b.ann-bad"); err != nil || v.Error == nil || v.Error.Message != "no" || v.Status != StatusFailed {
		t.Errorf("%+v, %v", v, err)
	}
	for _, change := range []string{"gavel_runs_by_owner", "gavel_runs_by_status", "gavel_runs_by_owner_and_status"} {
		names := readRows(t, openSQLite(t, r.config.Path), "SELECT name FROM sqlite_master WHERE type = 'index'")
		if !slices.ContainsFunc(names, func(row []string) bool { return row[0] == change }) {
			t.Errorf("there is no index %s: %s", change, fmt.Sprint(names))
		}
	}
}
