package engine

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
)

// Limits on the size of statistics, however many decisions there are.
const (
	maxTransitions = 1000
	maxShownCodes  = 5
)

type tally struct{ store.Tally }

// add adds figures; it returns false if the limit of transitions is reached.
func (t tally) add(f store.Figures) bool {
	f.Owner = ""
	if t.Tally[f.Transition] == nil && len(t.Tally) == maxTransitions {
		return false
	}
	t.Add(f)
	return true
}

func (t tally) listTransitions() []TransitionStatistics {
	out := make([]TransitionStatistics, 0, len(t.Tally))
	for key, c := range t.Tally {
		confidence := func(part float64) float64 { return float64(histogram(c.Confidence).quantile(part)) / 1000 }
		codes, took := rankCounts(c.Codes), histogram(c.Took)
		out = append(out, TransitionStatistics{
			Workflow: key.Workflow, State: key.State, Action: key.Action,
			Decisions: c.Decisions, Prechecks: c.Prechecks, Degraded: c.Degraded,
			Approved: c.Outcomes[judge.Approve], Rejected: c.Outcomes[judge.Reject], Escalated: c.Outcomes[judge.Escalate],
			DecidedBy: rankCounts(c.DecidedBy), Codes: codes[:min(len(codes), maxShownCodes)],
			TookMedianMs: store.TookOf(took.quantile(0.5)), TookP95Ms: store.TookOf(took.quantile(0.95)),
			ConfidenceLower: confidence(0.25), ConfidenceMedian: confidence(0.5), ConfidenceUpper: confidence(0.75),
		})
	}
	slices.SortFunc(out, func(a, b TransitionStatistics) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.State, b.State), cmp.Compare(a.Action, b.Action))
	})
	return out
}

// rankCounts returns counts in descending order, ties by name. Never nil.
func rankCounts[K ~string](counts map[K]int64) []Counted {
	out := make([]Counted, 0, len(counts))
	for name, n := range counts {
		out = append(out, Counted{string(name), n})
	}
	slices.SortFunc(out, func(a, b Counted) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return out
}

type histogram map[int]int64

// quantile returns the bucket of the given quantile (nearest rank); 0 if there are no values.
func (h histogram) quantile(part float64) int {
	var all int64
	for _, n := range h {
		all += n
	}
	rank := int64(math.Ceil(part * float64(all)))
	for _, bucket := range slices.Sorted(maps.Keys(h)) {
		if rank -= h[bucket]; rank <= 0 {
			return bucket
		}
	}
	return 0
}
