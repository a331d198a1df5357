package engine //nolint:testpackage // what is kept of many decisions is not shown outside

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/validators/document"
)

func figuresOf(action, code string, took time.Duration, confidence float64) store.Figures {
	e := record.Event{Kind: record.Refused, Workflow: "w", From: "s", Action: action, Decision: &record.Decision{Took: document.Milliseconds(took)}}
	e.Decision.Confidence, e.Decision.Code = confidence, code
	return store.FiguresOf(e, "owner")
}

// nearest returns the quantile by nearest rank, over all values.
func nearest(values []float64, part float64) float64 {
	slices.Sort(values)
	return values[max(int(math.Ceil(part*float64(len(values))))-1, 0)]
}

func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		took := rapid.SliceOfN(rapid.Float64Range(1e4, 6e10), 1, 200).Draw(r, "took")
		confidence := rapid.SliceOfN(rapid.Float64Range(0, 1), len(took), len(took)).Draw(r, "confidence")
		all := tally{store.Tally{}}
		for i, ns := range took {
			all.add(figuresOf("a", "", time.Duration(ns), confidence[i]))
		}
		got := all.listTransitions()[0]
		for what, v := range map[string][2]float64{
			"median": {got.TookMedianMs, nearest(took, 0.5) / 1e6}, "p95": {got.TookP95Ms, nearest(took, 0.95) / 1e6},
		} {
			if math.Abs(v[0]-v[1]) > 0.02*v[1]+0.001 {
				r.Fatalf("%s: %v ms, is %v ms", what, v[0], v[1])
			}
		}
		for what, v := range map[string][2]float64{
			"lower": {got.ConfidenceLower, nearest(confidence, 0.25)}, "middle": {got.ConfidenceMedian, nearest(confidence, 0.5)},
			"upper": {got.ConfidenceUpper, nearest(confidence, 0.75)},
		} {
			if math.Abs(v[0]-v[1]) > 0.000501 {
				r.Fatalf("%s quartile: %v, is %v", what, v[0], v[1])
			}
		}
	})
}

// However many actions and codes a caller invents, little is kept.
func TestStatisticsAreBounded(t *testing.T) {
	all := tally{store.Tally{}}
	beyond := 0
	for i := range 3 * maxTransitions {
		if !all.add(figuresOf(fmt.Sprint("action ", i), "", 0, 1)) {
			beyond++
		}
		all.add(figuresOf("action 1", fmt.Sprint("code ", i%500), 0, 1))
	}
	if len(all.Tally) != maxTransitions || beyond != 2*maxTransitions {
		t.Errorf("%d transitions are kept, %d decisions are beyond", len(all.Tally), beyond)
	}
	one := all.Tally[store.Transition{Workflow: "w", State: "s", Action: "action 1"}]
	if len(one.Codes) != store.MostCodes || one.Decisions != 3*maxTransitions+1 {
		t.Errorf("%d codes of %d decisions", len(one.Codes), one.Decisions)
	}
	for _, s := range all.listTransitions() {
		if s.Action == "action 1" && len(s.Codes) != maxShownCodes {
			t.Errorf("%d codes are shown", len(s.Codes))
		}
	}
}
