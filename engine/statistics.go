package engine

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// What bounds the memory of statistics, however many decisions there are.
const (
	mostTransitions = 1000
	mostCodes       = 100 // kept of one transition
	shownCodes      = 5
)

type tally map[transitionKey]*counts

type transitionKey struct{ workflow, state, action string }

type counts struct {
	decisions, prechecks, degraded int64
	outcomes                       map[judge.Outcome]int64
	deciders                       map[judge.LayerName]int64
	codes                          map[string]int64
	took, confidence               histogram
}

// count adds a decision, unless there is no room for its transition.
func (t tally) count(e record.Event) bool {
	key := transitionKey{e.Workflow, e.From, e.Action}
	c := t[key]
	if c == nil {
		if len(t) == mostTransitions {
			return false
		}
		c = &counts{
			outcomes: map[judge.Outcome]int64{}, deciders: map[judge.LayerName]int64{}, codes: map[string]int64{},
			took: histogram{}, confidence: histogram{},
		}
		t[key] = c
	}
	if e.Kind == record.Prechecked {
		c.prechecks++
		return true
	}
	d := e.Decision
	c.decisions++
	c.outcomes[d.Outcome]++
	c.deciders[d.DecidedBy]++
	if d.Degraded {
		c.degraded++
	}
	if _, known := c.codes[d.Code]; d.Code != "" && (known || len(c.codes) < mostCodes) {
		c.codes[d.Code]++
	}
	c.took[tookBucket(d.Took)]++
	c.confidence[int(math.Round(d.Confidence*1000))]++
	return true
}

func (t tally) listTransitions() []TransitionStatistics {
	out := make([]TransitionStatistics, 0, len(t))
	for key, c := range t {
		confidence := func(part float64) float64 { return float64(c.confidence.quantile(part)) / 1000 }
		codes := rankCounts(c.codes)
		out = append(out, TransitionStatistics{
			Workflow: key.workflow, State: key.state, Action: key.action,
			Decisions: c.decisions, Prechecks: c.prechecks, Degraded: c.degraded,
			Approved: c.outcomes[judge.Approve], Rejected: c.outcomes[judge.Reject], Escalated: c.outcomes[judge.Escalate],
			DecidedBy: rankCounts(c.deciders), Codes: codes[:min(len(codes), shownCodes)],
			TookMedianMs: tookOf(c.took.quantile(0.5)), TookP95Ms: tookOf(c.took.quantile(0.95)),
			ConfidenceLower: confidence(0.25), ConfidenceMedian: confidence(0.5), ConfidenceUpper: confidence(0.75),
		})
	}
	slices.SortFunc(out, func(a, b TransitionStatistics) int {
		return cmp.Or(cmp.Compare(a.Workflow, b.Workflow), cmp.Compare(a.State, b.State), cmp.Compare(a.Action, b.Action))
	})
	return out
}

// rankCounts lists counts, the highest first, and equal ones by name. Never nil.
func rankCounts[K ~string](counts map[K]int64) []Counted {
	out := make([]Counted, 0, len(counts))
	for name, n := range counts {
		out = append(out, Counted{string(name), n})
	}
	slices.SortFunc(out, func(a, b Counted) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	return out
}

type histogram map[int]int64

// quantile is the bucket of the value that this part of all values is not above (by the
// nearest rank); 0 when there are none.
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

// bucketsPerDoubling makes a bucket of durations about 2 percent wide.
const bucketsPerDoubling = 32

// tookBucket is the bucket of a duration; 0 is for none at all.
func tookBucket(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return 1 + int(math.Log2(float64(d))*bucketsPerDoubling)
}

// tookOf is the middle of a bucket in milliseconds, to the microsecond.
func tookOf(bucket int) float64 {
	if bucket == 0 {
		return 0
	}
	ns := math.Exp2((float64(bucket-1) + 0.5) / bucketsPerDoubling)
	return math.Round(ns/1e3) / 1e3
}
