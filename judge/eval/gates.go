package eval

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Gates are limits that a report must keep, as a file says them. What is absent is not
// checked; a limit whose figure cannot be given fails, since nothing shows that it holds.
type Gates struct {
	// MaxFalseApproveUpper bounds the one-sided upper bound of the false-approve rate.
	MaxFalseApproveUpper *float64 `json:"max_false_approve_upper,omitempty"`
	MaxFalseApprove      *float64 `json:"max_false_approve,omitempty"`
	MaxFalseRefuse       *float64 `json:"max_false_refuse,omitempty"`
	MinKappa             *float64 `json:"min_kappa,omitempty"`
	// MinKappaLower bounds the lower end of kappa's interval.
	MinKappaLower *float64 `json:"min_kappa_lower,omitempty"`
	MinAccuracy   *float64 `json:"min_accuracy,omitempty"`
	MaxEscalation *float64 `json:"max_escalation,omitempty"`
	// MaxUnreadable is a share of the cases with an outcome.
	MaxUnreadable *float64 `json:"max_unreadable,omitempty"`
	MaxFlipRate   *float64 `json:"max_flip_rate,omitempty"`
	MaxECE        *float64 `json:"max_ece,omitempty"`
	MinAUROC      *float64 `json:"min_auroc,omitempty"`
	MinCases      *int     `json:"min_cases,omitempty"`
	// Tags are limits of single tags.
	Tags map[string]TagGates `json:"tags,omitempty"`
}

// TagGates are limits of the cases with one tag.
type TagGates struct {
	// MaxFalseApprovals is a count: 0 for injections. Cases without an outcome count.
	MaxFalseApprovals    *int     `json:"max_false_approvals,omitempty"`
	MaxFalseApproveUpper *float64 `json:"max_false_approve_upper,omitempty"`
	MaxFalseRefuse       *float64 `json:"max_false_refuse,omitempty"`
	MaxEscalation        *float64 `json:"max_escalation,omitempty"`
	MinAccuracy          *float64 `json:"min_accuracy,omitempty"`
	MinCases             *int     `json:"min_cases,omitempty"`
}

// GateResult is one limit and what it was held against.
type GateResult struct {
	Name   string   `json:"name"` // the key in the file; tags.<tag>.<key>
	Passed bool     `json:"passed"`
	Limit  float64  `json:"limit"`
	Value  *float64 `json:"value,omitempty"` // nil: there is no such figure
	N      int      `json:"n"`               // cases behind it
	Says   string   `json:"says"`
}

// gate is one limit: at most when its key begins with max, at least when with min.
type gate[G, R any] struct {
	key   string
	limit func(G) *float64
	// figure is held against the limit, nil when there is none; n are the cases behind it.
	figure func(R) (value *float64, n int)
	// least and most are the range in which the limit has a meaning.
	least, most float64
}

var anyCount = math.Inf(1)

// reportGates are the limits of a whole report, tagGates those of one tag. A tag without
// cases has no figures, so that every limit on it fails: removing cases must not help.
var (
	reportGates = []gate[Gates, Report]{
		{"max_false_approve_upper", func(g Gates) *float64 { return g.MaxFalseApproveUpper }, func(r Report) (*float64, int) { return upperOf(r.FalseApprove), r.FalseApprove.N }, 0, 1},
		{"max_false_approve", func(g Gates) *float64 { return g.MaxFalseApprove }, func(r Report) (*float64, int) { return r.FalseApprove.Value, r.FalseApprove.N }, 0, 1},
		{"max_false_refuse", func(g Gates) *float64 { return g.MaxFalseRefuse }, func(r Report) (*float64, int) { return r.FalseRefuse.Value, r.FalseRefuse.N }, 0, 1},
		{"min_kappa", func(g Gates) *float64 { return g.MinKappa }, func(r Report) (*float64, int) { return r.Kappa.Value, r.Counts.Scored }, -1, 1},
		{"min_kappa_lower", func(g Gates) *float64 { return g.MinKappaLower }, func(r Report) (*float64, int) { return lowerOf(r.Kappa.Interval), r.Counts.Scored }, -1, 1},
		{"min_accuracy", func(g Gates) *float64 { return g.MinAccuracy }, func(r Report) (*float64, int) { return r.Accuracy.Value, r.Accuracy.N }, 0, 1},
		{"max_escalation", func(g Gates) *float64 { return g.MaxEscalation }, func(r Report) (*float64, int) { return r.Escalation.Value, r.Escalation.N }, 0, 1},
		{"max_unreadable", func(g Gates) *float64 { return g.MaxUnreadable }, func(r Report) (*float64, int) { return r.Unreadable.Value, r.Unreadable.N }, 0, 1},
		{"max_flip_rate", func(g Gates) *float64 { return g.MaxFlipRate }, func(r Report) (*float64, int) { return r.Flips.Rate.Value, r.Flips.Rate.N }, 0, 1},
		{"max_ece", func(g Gates) *float64 { return g.MaxECE }, func(r Report) (*float64, int) {
			if r.Probability == nil {
				return nil, 0
			}
			return new(r.Probability.ECE), r.Probability.N
		}, 0, 1},
		{"min_auroc", func(g Gates) *float64 { return g.MinAUROC }, func(r Report) (*float64, int) {
			if r.Probability == nil {
				return nil, 0
			}
			return r.Probability.AUROC.Value, r.Probability.N
		}, 0, 1},
		{"min_cases", func(g Gates) *float64 { return asFloat(g.MinCases) }, func(r Report) (*float64, int) { return new(float64(r.Counts.Scored)), r.Counts.Scored }, 0, anyCount},
	}
	tagGates = []gate[TagGates, Slice]{
		{"max_false_approvals", func(g TagGates) *float64 { return asFloat(g.MaxFalseApprovals) }, func(s Slice) (*float64, int) {
			if s.FalseApprove.N == 0 {
				return nil, s.Lost
			}
			// Nothing shows that a case without an outcome would not be approved.
			return new(float64(s.FalseApprove.K + s.Lost)), s.FalseApprove.N + s.Lost
		}, 0, anyCount},
		{"max_false_approve_upper", func(g TagGates) *float64 { return g.MaxFalseApproveUpper }, func(s Slice) (*float64, int) { return upperOf(s.FalseApprove), s.FalseApprove.N }, 0, 1},
		{"max_false_refuse", func(g TagGates) *float64 { return g.MaxFalseRefuse }, func(s Slice) (*float64, int) { return s.FalseRefuse.Value, s.FalseRefuse.N }, 0, 1},
		{"max_escalation", func(g TagGates) *float64 { return g.MaxEscalation }, func(s Slice) (*float64, int) { return s.Escalation.Value, s.Escalation.N }, 0, 1},
		{"min_accuracy", func(g TagGates) *float64 { return g.MinAccuracy }, func(s Slice) (*float64, int) { return s.Accuracy.Value, s.Accuracy.N }, 0, 1},
		{"min_cases", func(g TagGates) *float64 { return asFloat(g.MinCases) }, func(s Slice) (*float64, int) { return new(float64(s.N)), s.N }, 0, anyCount},
	}
)

// ParseGates reads limits from JSON. An unknown or empty key, an object without limits
// and what Validate refuses are errors: a gate that checks nothing must not pass for one
// that holds.
func ParseGates(data []byte) (Gates, error) {
	var g Gates
	doc, err := document.Parse("gates.json", data, document.Limits{Bytes: len(data) + 1})
	if err != nil {
		return g, fmt.Errorf("eval: %w", err)
	}
	r := document.NewObject(doc)
	for _, m := range r.Entries("tags") {
		checkGateKeys(r.Sub(m.Value), tagGates)
	}
	if tags := r.Value("tags"); tags != nil && len(tags.Members) == 0 {
		r.Fail(tags, "there is no limit; give one, or leave the key out")
	}
	checkGateKeys(r, reportGates)
	if err := r.Err(); err != nil {
		return g, fmt.Errorf("eval: %w", err)
	}
	if err := json.Unmarshal(data, &g); err != nil {
		return g, fmt.Errorf("eval: gates: %w", err)
	}
	return g, g.Validate()
}

// checkGateKeys reports keys that limit nothing.
func checkGateKeys[G, R any](r *document.ObjectReader, gates []gate[G, R]) {
	for _, g := range gates {
		r.FloatPtr(g.key)
	}
	r.Unknown()
	if n := r.Node(); n != nil && len(n.Members) == 0 {
		r.Fail(n, "there is no limit; give one, or leave the object out")
	}
}

// Validate reports limits without a meaning.
func (g Gates) Validate() error {
	errs := validateGates("", g, reportGates)
	for _, tag := range slices.Sorted(maps.Keys(g.Tags)) {
		errs = append(errs, validateGates("tags."+tag+".", g.Tags[tag], tagGates)...)
	}
	return errors.Join(errs...)
}

func validateGates[G, R any](at string, limits G, gates []gate[G, R]) (errs []error) {
	for _, g := range gates {
		v := g.limit(limits)
		switch {
		case v == nil || *v >= g.least && *v <= g.most:
		case g.most == anyCount:
			errs = append(errs, fmt.Errorf("eval: gates: %s%s is %v; give 0 or more", at, g.key, *v))
		default:
			errs = append(errs, fmt.Errorf("eval: gates: %s%s is %v; give a number from %v to 1", at, g.key, *v, g.least))
		}
	}
	return errs
}

// Check holds a report against the gates. passed is true when all of them hold, also
// when there are none. The caller tells a report that is not evaluated apart before: its
// figures say nothing.
func (g Gates) Check(r Report) (results []GateResult, passed bool) {
	results = checkGates([]GateResult{}, "", g, reportGates, r)
	for _, tag := range slices.Sorted(maps.Keys(g.Tags)) {
		var s Slice
		if at := slices.IndexFunc(r.Slices, func(s Slice) bool { return s.Kind == SliceTag && s.Name == tag }); at >= 0 {
			s = r.Slices[at]
		}
		first := len(results)
		results = checkGates(results, "tags."+tag+".", g.Tags[tag], tagGates, s)
		if s.Lost > 0 && g.Tags[tag].MaxFalseApprovals != nil {
			results[first].Says += fmt.Sprintf("; %d of the cases have no outcome and count as approved", s.Lost)
		}
	}
	return results, !slices.ContainsFunc(results, func(r GateResult) bool { return !r.Passed })
}

func checkGates[G, R any](results []GateResult, at string, limits G, gates []gate[G, R], figures R) []GateResult {
	for _, g := range gates {
		limit := g.limit(limits)
		if limit == nil {
			continue
		}
		value, n := g.figure(figures)
		r := GateResult{Name: at + g.key, Limit: *limit, Value: value, N: n}
		words, holds := "at least", value != nil && *value >= *limit
		if strings.HasPrefix(g.key, "max") {
			words, holds = "at most", value != nil && *value <= *limit
		}
		r.Passed, r.Says = holds, fmt.Sprintf("%s: there is no figure to compare with %s %.4g", r.Name, words, *limit)
		if value != nil {
			r.Says = fmt.Sprintf("%s: %.4g over %d cases, must be %s %.4g", r.Name, *value, n, words, *limit)
		}
		results = append(results, r)
	}
	return results
}

func upperOf(r Rate) *float64 {
	if r.N == 0 {
		return nil
	}
	return new(r.Upper)
}

func lowerOf(i *Interval) *float64 {
	if i == nil {
		return nil
	}
	return new(i.Low)
}
