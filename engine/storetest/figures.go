//nolint:thelper // as decisions.go

package storetest

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// RequireFigures fails unless the figures of a query equal its decisions, counted one by one.
func RequireFigures(t testing.TB, s store.Store, q store.DecisionQuery) {
	t.Helper()
	want, got := map[string]int64{}, map[string]int64{}
	for _, p := range findDecisions(t, s, q) {
		e, d := p.Event, p.Event.Decision
		count := func(what string, value any) {
			want[fmt.Sprint(store.Transition{Owner: p.Owner, Workflow: e.Workflow, State: e.From, Action: e.Action}, what, value)]++
		}
		if e.Kind == record.Prechecked {
			count("prechecks", "")
			continue
		}
		count("decisions", "")
		count("outcome", d.Outcome)
		count("by", d.DecidedBy)
		count("confidence", math.Round(d.Confidence*1000))
		count("took", "")
		if d.Degraded {
			count("degraded", "")
		}
		if d.Code != "" {
			count("code", d.Code)
		}
	}
	for f, err := range s.Figures(t.Context(), q) {
		wantNone(t, err)
		count := func(what string, value any, n int64) {
			if n != 0 {
				got[fmt.Sprint(f.Transition, what, value)] += n
			}
		}
		count("prechecks", "", f.Prechecks)
		count("decisions", "", f.Decisions)
		count("degraded", "", f.Degraded)
		countEach(count, "outcome", f.Outcomes)
		countEach(count, "by", f.DecidedBy)
		countEach(count, "code", f.Codes)
		countEach(count, "confidence", f.Confidence)
		for _, n := range f.Took {
			count("took", "", n)
		}
	}
	if !maps.Equal(got, want) {
		for what, n := range want {
			if got[what] != n {
				t.Logf("%s: counted %d, there are %d", what, got[what], n)
			}
		}
		t.Fatalf("figures %+v do not match the decisions: %d counts, want %d", q, len(got), len(want))
	}
}

func countEach[K comparable](count func(string, any, int64), what string, counts map[K]int64) {
	for value, n := range counts {
		count(what, value, n)
	}
}

// figuresQueries returns queries that stored figures can answer, and queries that need single decisions.
func figuresQueries() []store.DecisionQuery {
	minute := Epoch.Add(time.Minute)
	return []store.DecisionQuery{
		{},
		{Workflow: workflows[0]},
		{Owner: principals[1]},
		{Workflow: workflows[1], Owner: principals[0]},
		{Since: minute},
		{Until: minute},
		{Since: minute, Until: minute.Add(2 * time.Minute)},
		{Since: Epoch.AddDate(-500, 0, 0), Until: Epoch.AddDate(500, 0, 0)},
		{Outcome: outcomes[1]},
		{Text: vocabulary[0], Workflow: workflows[0]},
		{Workflow: "none"},
	}
}

func decisionsCounted(t *testing.T, _ Driver, s store.Store) {
	RequireFigures(t, s, store.DecisionQuery{})
	growJudged(t, s, sampleSize(900))
	for _, q := range figuresQueries() {
		RequireFigures(t, s, q)
	}
	RequireFigures(t, s, store.DecisionQuery{Instance: ID(1000)})
	RequireFigures(t, s, store.DecisionQuery{Before: 200})
}
