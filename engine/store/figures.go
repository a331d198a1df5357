package store

import (
	"iter"
	"math"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// Transition is the key by which decisions are counted. State and Action are empty for starts.
type Transition struct {
	Owner    string `json:"owner,omitempty"`
	Workflow string `json:"workflow"`
	State    string `json:"state,omitempty"`
	Action   string `json:"action,omitempty"`
}

// Figures counts the decisions about a transition. Prechecks are counted in Prechecks only.
type Figures struct {
	Transition
	Decisions int64                     `json:"decisions,omitempty"`
	Prechecks int64                     `json:"prechecks,omitempty"`
	Degraded  int64                     `json:"degraded,omitempty"`
	Outcomes  map[judge.Outcome]int64   `json:"outcomes,omitempty"`
	DecidedBy map[judge.LayerName]int64 `json:"decidedBy,omitempty"`
	Codes     map[string]int64          `json:"codes,omitempty"` // at most MostCodes entries
	// Took counts durations by bucket (see TookOf), Confidence by thousandths.
	Took       map[int]int64 `json:"took,omitempty"`
	Confidence map[int]int64 `json:"confidence,omitempty"`
}

// MostCodes limits how many different codes are counted for one transition.
const MostCodes = 100

// Add adds other figures of the same transition.
func (f *Figures) Add(g Figures) {
	f.Decisions += g.Decisions
	f.Prechecks += g.Prechecks
	f.Degraded += g.Degraded
	addCounts(&f.Outcomes, g.Outcomes, math.MaxInt)
	addCounts(&f.DecidedBy, g.DecidedBy, math.MaxInt)
	addCounts(&f.Codes, g.Codes, MostCodes)
	addCounts(&f.Took, g.Took, math.MaxInt)
	addCounts(&f.Confidence, g.Confidence, math.MaxInt)
}

func addCounts[K comparable](to *map[K]int64, from map[K]int64, most int) {
	if *to == nil {
		*to = make(map[K]int64, len(from))
	}
	for k, n := range from {
		if _, known := (*to)[k]; known || len(*to) < most {
			(*to)[k] += n
		}
	}
}

// Tally sums figures by transition.
type Tally map[Transition]*Figures

// Add adds figures to those of their transition.
func (t Tally) Add(g Figures) {
	if t[g.Transition] == nil {
		t[g.Transition] = &Figures{Transition: g.Transition}
	}
	t[g.Transition].Add(g)
}

// CountDecisions yields the figures of each decision.
func CountDecisions(decisions iter.Seq2[PlacedEvent, error]) iter.Seq2[Figures, error] {
	return func(yield func(Figures, error) bool) {
		for p, err := range decisions {
			if err != nil {
				yield(Figures{}, err)
				return
			}
			if !yield(FiguresOf(p.Event, p.Owner), nil) {
				return
			}
		}
	}
}

// FiguresOf returns the figures of an event; owner is the owner of its instance. They are all zero if the event has
// no decision.
func FiguresOf(e record.Event, owner string) Figures {
	f := Figures{Transition: Transition{Owner: owner, Workflow: e.Workflow, State: e.From, Action: e.Action}}
	d := e.Decision
	switch {
	case d == nil:
		return f
	case e.Kind == record.Prechecked:
		f.Prechecks = 1
		return f
	case d.Degraded:
		f.Degraded = 1
	}
	f.Decisions = 1
	f.Outcomes = map[judge.Outcome]int64{d.Outcome: 1}
	f.DecidedBy = map[judge.LayerName]int64{d.DecidedBy: 1}
	if d.Code != "" {
		f.Codes = map[string]int64{d.Code: 1}
	}
	f.Took = map[int]int64{tookBucket(d.Took.Duration()): 1}
	f.Confidence = map[int]int64{int(math.Round(d.Confidence * 1000)): 1}
	return f
}

// bucketsPerDoubling makes each duration bucket about 2 percent wide.
const bucketsPerDoubling = 32

// tookBucket returns the bucket of a duration; bucket 0 holds durations of 0 or less.
func tookBucket(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return 1 + int(math.Log2(float64(d))*bucketsPerDoubling)
}

// TookOf returns the middle of a bucket in milliseconds, rounded to the microsecond.
func TookOf(bucket int) float64 {
	if bucket == 0 {
		return 0
	}
	ns := math.Exp2((float64(bucket-1) + 0.5) / bucketsPerDoubling)
	return math.Round(ns/1e3) / 1e3
}
