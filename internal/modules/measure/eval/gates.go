package eval

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Gates are limits on the figures of a report, keyed by their names in a gates file. A name that begins with max sets
// an upper limit, one with min a lower limit. Absent limits are not checked. A limit whose figure is unavailable fails,
// because nothing shows that the limit holds.
type Gates struct {
	Limits map[string]float64
	// Tags holds limits on the cases with one tag, by tag and name.
	Tags map[string]map[string]float64
}

// GateResult is one limit and the figure that it was compared with.
type GateResult struct {
	Name   string   `json:"name"` // the key in the file; tags.<tag>.<key>
	Passed bool     `json:"passed"`
	Limit  float64  `json:"limit"`
	Value  *float64 `json:"value,omitempty"` // nil if the figure is unavailable
	N      int      `json:"n"`               // cases that the figure is computed from
	Says   string   `json:"says"`
}

// gate defines a limit: its name, and the figure that it applies to.
type gate[R any] struct {
	name string
	// figure returns nil if the figure is unavailable; n is the number of cases that it is computed from.
	figure func(R) (value *float64, n int)
	// least and most bound the range of meaningful limits.
	least, most float64
}

// anyCount is the upper bound for a limit on a count: any count is meaningful.
var anyCount = math.Inf(1)

// reportGates are the limits on a whole report, tagGates those on one tag. A tag without cases has no figures, so every
// limit on it fails: removing cases must not make a gate pass.
var (
	reportGates = []gate[Report]{
		// The one-sided upper bound.
		{"max_false_approve_upper", func(r Report) (*float64, int) { return r.FalseApprove.upperBound() }, 0, 1},
		{"max_false_approve", func(r Report) (*float64, int) { return r.FalseApprove.figure() }, 0, 1},
		{"max_false_refuse", func(r Report) (*float64, int) { return r.FalseRefuse.figure() }, 0, 1},
		{"min_kappa", func(r Report) (*float64, int) { return r.Kappa.Value, r.Counts.Scored }, -1, 1},
		// The lower end of the interval.
		{"min_kappa_lower", func(r Report) (*float64, int) {
			if r.Kappa.Interval == nil {
				return nil, r.Counts.Scored
			}
			return new(r.Kappa.Interval.Low), r.Counts.Scored
		}, -1, 1},
		{"min_accuracy", func(r Report) (*float64, int) { return r.Accuracy.figure() }, 0, 1},
		{"max_escalation", func(r Report) (*float64, int) { return r.Escalation.figure() }, 0, 1},
		// A share of the cases with an outcome.
		{"max_unreadable", func(r Report) (*float64, int) { return r.Unreadable.figure() }, 0, 1},
		{"max_flip_rate", func(r Report) (*float64, int) { return r.Flips.Rate.figure() }, 0, 1},
		{"max_ece", func(r Report) (*float64, int) {
			if r.Probability == nil {
				return nil, 0
			}
			return new(r.Probability.ECE), r.Probability.N
		}, 0, 1},
		{"min_auroc", func(r Report) (*float64, int) {
			if r.Probability == nil {
				return nil, 0
			}
			return r.Probability.AUROC.Value, r.Probability.N
		}, 0, 1},
		{"min_cases", func(r Report) (*float64, int) { return new(float64(r.Counts.Scored)), r.Counts.Scored }, 0, anyCount},
	}
	tagGates = []gate[Slice]{
		{"max_false_approvals", func(s Slice) (*float64, int) {
			if s.FalseApprove.N == 0 {
				return nil, s.Lost
			}
			// A case without an outcome might have been approved.
			return new(float64(s.FalseApprove.K + s.Lost)), s.FalseApprove.N + s.Lost
		}, 0, anyCount},
		{"max_false_approve_upper", func(s Slice) (*float64, int) { return s.FalseApprove.upperBound() }, 0, 1},
		{"max_false_refuse", func(s Slice) (*float64, int) { return s.FalseRefuse.figure() }, 0, 1},
		{"max_escalation", func(s Slice) (*float64, int) { return s.Escalation.figure() }, 0, 1},
		{"min_accuracy", func(s Slice) (*float64, int) { return s.Accuracy.figure() }, 0, 1},
		{"min_cases", func(s Slice) (*float64, int) { return new(float64(s.N)), s.N }, 0, anyCount},
	}
)

func (r Rate) figure() (*float64, int) { return r.Value, r.N }

func (r Rate) upperBound() (*float64, int) {
	if r.N == 0 {
		return nil, 0
	}
	return new(r.Upper), r.N
}

// ReadGates reads limits from a document. Unknown and empty keys, objects without limits and meaningless limits are
// errors: a gate that checks nothing must not look like one that holds.
func ReadGates(doc *document.Node) (Gates, error) {
	r := document.NewObject(doc)
	var g Gates
	for _, m := range r.Entries("tags") {
		if g.Tags == nil {
			g.Tags = map[string]map[string]float64{}
		}
		g.Tags[m.Key] = readLimits(r.Sub(m.Value), tagGates)
	}
	if tags := r.Value("tags"); tags != nil && len(tags.Members) == 0 {
		r.Fail(tags, "there is no limit; give one, or leave the key out")
	}
	g.Limits = readLimits(r, reportGates)
	if err := r.Err(); err != nil {
		return Gates{}, fmt.Errorf("eval: %w", err)
	}
	return g, nil
}

func readLimits[R any](r *document.ObjectReader, gates []gate[R]) map[string]float64 {
	limits := map[string]float64{}
	for _, g := range gates {
		v := r.FloatPtr(g.name)
		if v == nil {
			continue
		}
		limits[g.name] = *v
		switch isCount := g.most == anyCount; {
		case isCount && (*v < 0 || *v != math.Trunc(*v)):
			r.Fail(r.Value(g.name), "got %v; give a whole number, 0 or more", *v)
		case *v < g.least || *v > g.most:
			r.Fail(r.Value(g.name), "got %v; give a number from %v to 1", *v, g.least)
		}
	}
	r.Unknown()
	if n := r.Node(); n != nil && len(n.Members) == 0 {
		r.Fail(n, "there is no limit; give one, or leave the object out")
	}
	return limits
}

// Check compares a report with the gates. passed is true if all of them hold, or if there are none. Callers must first
// handle a report that is not evaluated, because its figures are not meaningful.
func (g Gates) Check(r Report) (results []GateResult, passed bool) {
	results = checkGates([]GateResult{}, "", g.Limits, reportGates, r)
	for _, tag := range slices.Sorted(maps.Keys(g.Tags)) {
		var s Slice
		if at := slices.IndexFunc(r.Slices, func(s Slice) bool { return s.Kind == SliceTag && s.Name == tag }); at >= 0 {
			s = r.Slices[at]
		}
		first := len(results)
		results = checkGates(results, "tags."+tag+".", g.Tags[tag], tagGates, s)
		if _, limited := g.Tags[tag]["max_false_approvals"]; limited && s.Lost > 0 {
			results[first].Says += fmt.Sprintf("; %d of the cases have no outcome and count as approved", s.Lost)
		}
	}
	if r.hasFewGroups() {
		for i := range results {
			results[i].Says += fmt.Sprintf(" (only %d groups, fewer than %d)", r.Counts.Groups, FewGroups)
		}
	}
	return results, !slices.ContainsFunc(results, func(r GateResult) bool { return !r.Passed })
}

func checkGates[R any](results []GateResult, at string, limits map[string]float64, gates []gate[R], figures R) []GateResult {
	for _, g := range gates {
		limit, limited := limits[g.name]
		if !limited {
			continue
		}
		value, n := g.figure(figures)
		r := GateResult{Name: at + g.name, Limit: limit, Value: value, N: n}
		words, holds := "at least", value != nil && *value >= limit
		if strings.HasPrefix(g.name, "max") {
			words, holds = "at most", value != nil && *value <= limit
		}
		r.Passed, r.Says = holds, fmt.Sprintf("%s: there is no figure to compare with %s %.4g", r.Name, words, limit)
		if value != nil {
			r.Says = fmt.Sprintf("%s: %.4g over %d cases, must be %s %.4g", r.Name, *value, n, words, limit)
		}
		results = append(results, r)
	}
	return results
}
