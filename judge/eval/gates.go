package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// ParseGates reads limits from JSON. A key that is unknown or spelt otherwise, one that
// is empty, and limits that limit nothing are errors, as is what Validate refuses: a gate
// that checks nothing must not pass for one that holds.
func ParseGates(document []byte) (Gates, error) {
	var g Gates
	dec := json.NewDecoder(bytes.NewReader(document))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&g); err != nil {
		return g, fmt.Errorf("eval: gates: %w", err)
	}
	text, err := json.Marshal(g)
	if err != nil {
		return g, fmt.Errorf("eval: gates: %w", err)
	}
	var given, kept map[string]any
	if err := errors.Join(json.Unmarshal(document, &given), json.Unmarshal(text, &kept)); err != nil {
		return g, fmt.Errorf("eval: gates: %w", err)
	}
	return g, errors.Join(lostGates("", given, kept), g.Validate())
}

// lostGates says what was given and limits nothing. The decoder leaves out what is null,
// and takes a key in capitals for the one in small letters.
func lostGates(at string, given, kept map[string]any) error {
	if len(given) == 0 {
		return fmt.Errorf("eval: gates: %sthere is no limit; give one, or leave it out", at)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(given)) {
		of, isMap := given[key].(map[string]any)
		left, has := kept[key].(map[string]any)
		switch {
		case given[key] == nil:
			errs = append(errs, fmt.Errorf("eval: gates: %s%s is empty; give it a value, or leave it out", at, key))
		case isMap && (has || len(of) == 0):
			errs = append(errs, lostGates(at+key+": ", of, left))
		case kept[key] == nil:
			errs = append(errs, fmt.Errorf("eval: gates: %s%s is no key; write keys in small letters", at, key))
		}
	}
	return errors.Join(errs...)
}

// Validate says which limits mean nothing.
func (g Gates) Validate() error {
	var errs []error
	shares := func(at string, named map[string]*float64, low float64) {
		for _, name := range slices.Sorted(maps.Keys(named)) {
			if v := named[name]; v != nil && !(*v >= low && *v <= 1) {
				errs = append(errs, fmt.Errorf("eval: gates: %s%s is %v; give a number from %v to 1", at, name, *v, low))
			}
		}
	}
	counts := func(at string, named map[string]*int) {
		for _, name := range slices.Sorted(maps.Keys(named)) {
			if v := named[name]; v != nil && *v < 0 {
				errs = append(errs, fmt.Errorf("eval: gates: %s%s is %d; give 0 or more", at, name, *v))
			}
		}
	}
	shares("", map[string]*float64{
		"max_false_approve_upper": g.MaxFalseApproveUpper, "max_false_approve": g.MaxFalseApprove, "max_false_refuse": g.MaxFalseRefuse,
		"min_accuracy": g.MinAccuracy, "max_escalation": g.MaxEscalation, "max_unreadable": g.MaxUnreadable,
		"max_flip_rate": g.MaxFlipRate, "max_ece": g.MaxECE, "min_auroc": g.MinAUROC,
	}, 0)
	shares("", map[string]*float64{"min_kappa": g.MinKappa, "min_kappa_lower": g.MinKappaLower}, -1)
	counts("", map[string]*int{"min_cases": g.MinCases})
	for _, tag := range slices.Sorted(maps.Keys(g.Tags)) {
		t, at := g.Tags[tag], "tags."+tag+"."
		shares(at, map[string]*float64{
			"max_false_approve_upper": t.MaxFalseApproveUpper, "max_false_refuse": t.MaxFalseRefuse,
			"max_escalation": t.MaxEscalation, "min_accuracy": t.MinAccuracy,
		}, 0)
		counts(at, map[string]*int{"max_false_approvals": t.MaxFalseApprovals, "min_cases": t.MinCases})
	}
	return errors.Join(errs...)
}

// checker collects results.
type checker struct{ all []GateResult }

// atMost and atLeast hold a figure against a limit, when there is one.
func (c *checker) atMost(name string, limit, value *float64, n int) {
	c.check(name, limit, value, n, "at most", func(v, l float64) bool { return v <= l })
}

func (c *checker) atLeast(name string, limit, value *float64, n int) {
	c.check(name, limit, value, n, "at least", func(v, l float64) bool { return v >= l })
}

func (c *checker) check(name string, limit, value *float64, n int, words string, holds func(v, l float64) bool) {
	if limit == nil {
		return
	}
	r := GateResult{Name: name, Limit: *limit, Value: value, N: n}
	if value == nil {
		r.Says = fmt.Sprintf("%s: there is no figure to hold against %s %.4g", name, words, *limit)
	} else {
		r.Passed = holds(*value, *limit)
		r.Says = fmt.Sprintf("%s: %.4g over %d cases, must be %s %.4g", name, *value, n, words, *limit)
	}
	c.all = append(c.all, r)
}

// Check holds a report against the gates. passed is true when all of them hold; with no
// gates there is nothing to fail. A report that is not evaluated must be told apart
// before: its figures say nothing.
func (g Gates) Check(r Report) (results []GateResult, passed bool) {
	c := &checker{all: []GateResult{}}
	c.atMost("max_false_approve_upper", g.MaxFalseApproveUpper, upperOf(r.FalseApprove), r.FalseApprove.N)
	c.atMost("max_false_approve", g.MaxFalseApprove, r.FalseApprove.Value, r.FalseApprove.N)
	c.atMost("max_false_refuse", g.MaxFalseRefuse, r.FalseRefuse.Value, r.FalseRefuse.N)
	c.atLeast("min_kappa", g.MinKappa, r.Kappa.Value, r.Counts.Scored)
	c.atLeast("min_kappa_lower", g.MinKappaLower, lowerOf(r.Kappa.Interval), r.Counts.Scored)
	c.atLeast("min_accuracy", g.MinAccuracy, r.Accuracy.Value, r.Accuracy.N)
	c.atMost("max_escalation", g.MaxEscalation, r.Escalation.Value, r.Escalation.N)
	c.atMost("max_unreadable", g.MaxUnreadable, r.Unreadable.Value, r.Unreadable.N)
	c.atMost("max_flip_rate", g.MaxFlipRate, r.Flips.Rate.Value, r.Flips.Rate.N)
	var ece, area *float64
	n := 0
	if p := r.Probability; p != nil {
		ece, area, n = new(p.ECE), p.AUROC.Value, p.N
	}
	c.atMost("max_ece", g.MaxECE, ece, n)
	c.atLeast("min_auroc", g.MinAUROC, area, n)
	c.atLeast("min_cases", intAsFloat(g.MinCases), new(float64(r.Counts.Scored)), r.Counts.Scored)
	for _, tag := range slices.Sorted(maps.Keys(g.Tags)) {
		c.checkTag(tag, g.Tags[tag], r)
	}
	return c.all, !slices.ContainsFunc(c.all, func(r GateResult) bool { return !r.Passed })
}

// checkTag holds one tag against its gates. A tag without cases has no figures, so that
// everything asked of it fails: cases that were taken out must not pass.
func (c *checker) checkTag(tag string, g TagGates, r Report) {
	var s Slice
	at := slices.IndexFunc(r.Slices, func(s Slice) bool { return s.Kind == SliceTag && s.Name == tag })
	if at >= 0 {
		s = r.Slices[at]
	}
	name := "tags." + tag + "."
	var wrong *float64
	if s.FalseApprove.N > 0 {
		// Of a case without an outcome nothing shows that it would not be approved.
		wrong = new(float64(s.FalseApprove.K + s.Lost))
	}
	c.atMost(name+"max_false_approvals", intAsFloat(g.MaxFalseApprovals), wrong, s.FalseApprove.N+s.Lost)
	if s.Lost > 0 && g.MaxFalseApprovals != nil {
		c.all[len(c.all)-1].Says += fmt.Sprintf("; %d of the cases have no outcome and count as approved", s.Lost)
	}
	c.atMost(name+"max_false_approve_upper", g.MaxFalseApproveUpper, upperOf(s.FalseApprove), s.FalseApprove.N)
	c.atMost(name+"max_false_refuse", g.MaxFalseRefuse, s.FalseRefuse.Value, s.FalseRefuse.N)
	c.atMost(name+"max_escalation", g.MaxEscalation, s.Escalation.Value, s.Escalation.N)
	c.atLeast(name+"min_accuracy", g.MinAccuracy, s.Accuracy.Value, s.Accuracy.N)
	c.atLeast(name+"min_cases", intAsFloat(g.MinCases), new(float64(s.N)), s.N)
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

func intAsFloat(n *int) *float64 { return asFloat(n) }
