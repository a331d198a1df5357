package replay

import (
	"errors"
	"fmt"
)

// Gates are limits that a report must keep; nil is not checked.
type Gates struct {
	// MaxFlips bounds Flips, MaxNewApprovals NewApprovals.
	MaxFlips, MaxNewApprovals *int64
	// MaxNotReplayed bounds the share of decisions that were not judged again, 0 to 1.
	// Beyond it nothing is shown by the rest: the report is not Evaluated.
	MaxNotReplayed *float64
}

// mostFailed is the share of decisions for which judging may fail before a report with
// limits shows nothing: a model that is away must not pass for one that agrees.
const mostFailed = 0.01

// Any reports whether there is a limit.
func (g Gates) Any() bool {
	return g.MaxFlips != nil || g.MaxNewApprovals != nil || g.MaxNotReplayed != nil
}

// Validate says which limits mean nothing.
func (g Gates) Validate() error {
	var errs []error
	for name, v := range map[string]*int64{"max flips": g.MaxFlips, "max new approvals": g.MaxNewApprovals} {
		if v != nil && *v < 0 {
			errs = append(errs, fmt.Errorf("replay: %s is %d; give 0 or more", name, *v))
		}
	}
	if v := g.MaxNotReplayed; v != nil && !(*v >= 0 && *v <= 1) {
		errs = append(errs, fmt.Errorf("replay: max not replayed is %v; give a share from 0 to 1", *v))
	}
	return errors.Join(errs...)
}

// GateResult is one limit and what it was held against.
type GateResult struct {
	Name   string  `json:"name"` // maxFlips, maxNewApprovals or maxNotReplayed
	Limit  float64 `json:"limit"`
	Value  float64 `json:"value"`
	Passed bool    `json:"passed"`
}

// check holds the report against the limits, and says whether it shows anything.
func (g Gates) check(r *Report) {
	r.Gates = []GateResult{}
	count := func(name string, limit *int64, value int64) {
		if limit == nil {
			return
		}
		one := GateResult{Name: name, Limit: float64(*limit), Value: float64(value), Passed: value <= *limit}
		r.Gates = append(r.Gates, one)
		r.Regression = r.Regression || !one.Passed
	}
	count("maxNewApprovals", g.MaxNewApprovals, r.NewApprovals)
	count("maxFlips", g.MaxFlips, r.Flips)
	r.Evaluated = true
	switch {
	case !g.Any():
	case r.Replayed == 0:
		r.Evaluated, r.NotEvaluated = false, "no decision was judged again, so no limit was put to the test"
	case float64(r.Failed) > mostFailed*float64(r.Replayed+r.Failed):
		r.Evaluated, r.NotEvaluated = false, fmt.Sprintf("judging failed for %d of %d decisions", r.Failed, r.Replayed+r.Failed)
	}
	if g.MaxNotReplayed == nil {
		return
	}
	one := GateResult{Name: "maxNotReplayed", Limit: *g.MaxNotReplayed, Passed: true}
	if r.Decisions > 0 {
		one.Value = float64(r.Decisions-r.Replayed) / float64(r.Decisions)
		one.Passed = one.Value <= one.Limit
	}
	r.Gates = append(r.Gates, one)
	if !one.Passed {
		r.Evaluated = false
		r.NotEvaluated = fmt.Sprintf("%d of %d decisions were not judged again", r.Decisions-r.Replayed, r.Decisions)
	}
}
