package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/judge"
)

// Fitting is one calibration with what it is worth on cases that it was not fitted on.
type Fitting struct {
	// Calibration is what judge.ParseCalibrations reads; nil when none could be fitted.
	Calibration *judge.Calibration `json:"calibration,omitempty"`
	// Model, PromptDigest and CriteriaDigest say what was fitted.
	Model          string `json:"model"`
	PromptDigest   string `json:"promptDigest"`
	CriteriaDigest string `json:"criteriaDigest"`
	Fitted         int    `json:"fitted"` // answers of the split cal
	Right          int    `json:"right"`  // of those
	// Before and After are figures on the split test: of the confidence as the model
	// stated it, and as calibrated. nil when there are no such answers.
	Before *ConfidenceScore `json:"before,omitempty"`
	After  *ConfidenceScore `json:"after,omitempty"`
	// Warnings say what weakens it, or why there is none.
	Warnings []string `json:"warnings,omitempty"`
}

// ConfidenceScore says how well confidences fit the share of right answers.
type ConfidenceScore struct {
	N     int     `json:"n"`
	Right Rate    `json:"right"`
	Mean  float64 `json:"mean"` // confidence
	Brier float64 `json:"brier"`
	ECE   float64 `json:"ece"`
	// LogLoss in nats, with confidences held between 0.001 and 0.999.
	LogLoss float64 `json:"logLoss"`
	Bins    []Bin   `json:"bins"`
}

// fewForFit is where Platt's two numbers begin to mean something, fewForIsotonic where
// a free line does.
const (
	fewForFit      = 20
	fewForIsotonic = 200
)

type statement struct {
	stated float64
	right  bool
	group  uint32
}

type bindingKey struct{ model, prompt, criteria string }

// Calibrate fits a calibration for each model, prompt and set of criteria on the cases
// of the split Cal, and measures it on those of Test. Dataset and fitted (a date) are
// words for the file. The error says what is out of range.
//
// An answer of the model is right when it approved a case that should be approved or
// did not approve one that must not be, whatever policy made of it afterwards.
func Calibrate(cases []Case, results []Result, method judge.CalibrationMethod, dataset, fitted string, o Options) ([]Fitting, error) {
	if method != judge.MethodPlatt && method != judge.MethodIsotonic {
		return nil, fmt.Errorf("eval: calibration method %.40q is unknown; use %q or %q", method, judge.MethodPlatt, judge.MethodIsotonic)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	part := func(s Split) map[bindingKey][]statement {
		o := o
		o.Splits = []Split{s}
		return groupStatements(joinResults(cases, results, o).rows)
	}
	cal, test := part(Cal), part(Test)
	keys := map[bindingKey]bool{}
	for key := range cal {
		keys[key] = true
	}
	for key := range test {
		keys[key] = true
	}
	all := []Fitting{}
	for key := range keys {
		f := Fitting{Model: key.model, PromptDigest: key.prompt, CriteriaDigest: key.criteria, Fitted: len(cal[key])}
		for _, s := range cal[key] {
			if s.right {
				f.Right++
			}
		}
		f.fit(cal[key], method, dataset, fitted)
		f.measure(test[key], o)
		if says := sharedGroups(cases); says != "" {
			f.Warnings = append(f.Warnings, says)
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Fitting) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.PromptDigest, b.PromptDigest), cmp.Compare(a.CriteriaDigest, b.CriteriaDigest))
	})
	return all, nil
}

// sharedGroups reports groups with cases in both Cal and Test: a fit on one has then
// seen some of the other.
func sharedGroups(cases []Case) string {
	in := map[Split]map[string]bool{Cal: {}, Test: {}}
	shared := 0
	for _, c := range cases {
		of, other := in[c.Split], in[Cal]
		if c.Split == Cal {
			other = in[Test]
		}
		if c.Group == "" || of == nil || of[c.Group] {
			continue
		}
		of[c.Group] = true
		if other[c.Group] {
			shared++
		}
	}
	if shared == 0 {
		return ""
	}
	return fmt.Sprintf("groups in both cal and test: %d; the test cases are not new, and figures on them are too good (gavel eval lint lists them)", shared)
}

func groupStatements(rows []row) map[bindingKey][]statement {
	all := map[bindingKey][]statement{}
	group, last := uint32(0), ""
	for _, w := range rows {
		r := w.r
		if w.group != last {
			group, last = group+1, w.group
		}
		if _, ok := approvalProbability(r); !ok || r.Stated == nil || !(*r.Stated >= 0 && *r.Stated <= 1) {
			continue
		}
		key := bindingKey{r.Model, r.PromptDigest, r.CriteriaDigest}
		all[key] = append(all[key], statement{*r.Stated, leansToApprove(r) != w.mustNot(), group})
	}
	return all
}

// fit leaves Calibration nil, with a warning, where one would mislead.
func (f *Fitting) fit(all []statement, method judge.CalibrationMethod, dataset, fitted string) {
	warn := func(format string, args ...any) { f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...)) }
	switch {
	case f.Model == "" || f.PromptDigest == "" || f.CriteriaDigest == "":
		warn("the results do not say for which model, prompt and criteria they hold, so nothing can be bound to them")
		return
	case len(all) < fewForFit:
		warn("there are %d answers in the split cal; %d are needed", len(all), fewForFit)
		return
	case f.Right == 0 || f.Right == len(all):
		warn("all %d answers in the split cal are %s: there is nothing to tell apart", len(all), map[bool]string{true: "wrong", false: "right"}[f.Right == 0])
		return
	}
	c := judge.Calibration{Model: f.Model, PromptDigest: f.PromptDigest, CriteriaDigest: f.CriteriaDigest, Method: method, N: len(all), Dataset: dataset, Fitted: fitted}
	p, good := make([]float64, len(all)), make([]bool, len(all))
	for i, s := range all {
		p[i], good[i] = s.stated, s.right
	}
	if method == judge.MethodIsotonic {
		if len(all) < fewForIsotonic {
			warn("isotonic regression on %d answers follows chance; platt is better below %d", len(all), fewForIsotonic)
		}
		c.Isotonic = new(FitIsotonic(p, good))
	} else {
		platt := FitPlatt(p, good)
		if platt.A > 0 {
			warn("the model is the more often wrong the surer it is (a = %.3g): it cannot be calibrated", platt.A)
			return
		}
		c.Platt = &platt
	}
	if _, err := judge.NewCalibrations([]judge.Calibration{c}); err != nil {
		warn("the calibration is not usable: %v", err)
		return
	}
	f.Calibration = &c
}

func (f *Fitting) measure(test []statement, o Options) {
	if len(test) == 0 {
		f.Warnings = append(f.Warnings, "there are no answers in the split test: what the calibration is worth is not known")
		return
	}
	f.Before = scoreConfidence(test, func(p float64) float64 { return p }, o)
	if f.Calibration != nil {
		c := *f.Calibration
		f.After = scoreConfidence(test, c.Apply, o)
		if f.After.Brier > f.Before.Brier {
			f.Warnings = append(f.Warnings, fmt.Sprintf("on the split test it makes the Brier score worse: %.4g before, %.4g after", f.Before.Brier, f.After.Brier))
		}
	}
}

func scoreConfidence(all []statement, confidence func(float64) float64, o Options) *ConfidenceScore {
	sorted, squares, sizes := make([]forecast, len(all)), 0.0, groupSizes{}
	for i, s := range all {
		sorted[i] = forecast{p: confidence(s.stated), good: s.right, group: s.group}
		squares += sizes.add(s.group)
	}
	slices.SortFunc(sorted, byProbability)
	s := &ConfidenceScore{N: len(all), Bins: binForecasts(sorted, o.Bins, o.Confidence)}
	right, n := 0, float64(len(all))
	for _, f := range sorted {
		s.Mean += f.p / n
		s.Brier += f.square() / n
		p := min(max(f.p, judge.LeastStated), 1-judge.LeastStated)
		if f.good {
			right++
			s.LogLoss -= math.Log(p) / n
		} else {
			s.LogLoss -= math.Log(1-p) / n
		}
	}
	for _, b := range s.Bins {
		s.ECE += math.Abs(b.Mean-*b.Share.Value) * float64(b.N) / n
	}
	s.Right = newRate(right, len(all), squares, o.Confidence)
	return s
}

// FitIsotonic returns the rising line closest to the shares of right answers, by
// pooling adjacent violators (Ayer et al. 1955). Each level stands with its first and
// its last stated confidence.
func FitIsotonic(stated []float64, right []bool) judge.Isotonic {
	type block struct{ low, high, sum, n float64 }
	order := make([]int, len(stated))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(stated[a], stated[b]) })
	var blocks []block
	for _, i := range order {
		one := block{stated[i], stated[i], forecast{good: right[i]}.value(), 1}
		if last := len(blocks) - 1; last >= 0 && blocks[last].high == one.low {
			blocks[last].sum += one.sum
			blocks[last].n++
			continue
		}
		blocks = append(blocks, one)
	}
	pooled := blocks[:0]
	for _, b := range blocks {
		pooled = append(pooled, b)
		for last := len(pooled) - 1; last > 0 && pooled[last-1].sum*pooled[last].n >= pooled[last].sum*pooled[last-1].n; last-- {
			into := &pooled[last-1]
			into.high, into.sum, into.n = pooled[last].high, into.sum+pooled[last].sum, into.n+pooled[last].n
			pooled = pooled[:last]
		}
	}
	var line judge.Isotonic
	for _, b := range pooled {
		line.X, line.Y = append(line.X, b.low), append(line.Y, b.sum/b.n)
		if b.high > b.low {
			line.X, line.Y = append(line.X, b.high), append(line.Y, b.sum/b.n)
		}
	}
	return line
}

// FitPlatt returns the sigmoid of greatest likelihood for Platt's smoothed targets
// (Platt 1999), by Newton's method with backtracking (Lin, Lin and Weng 2007, "A note
// on Platt's probabilistic outputs for support vector machines").
func FitPlatt(stated []float64, right []bool) judge.Platt {
	good := 0.0
	for _, r := range right {
		good += forecast{good: r}.value()
	}
	bad := float64(len(right)) - good
	high, low := (good+1)/(good+2), 1/(bad+2)
	f, t := make([]float64, len(stated)), make([]float64, len(stated))
	for i := range stated {
		f[i], t[i] = judge.LogOdds(stated[i]), low
		if right[i] {
			t[i] = high
		}
	}
	p := judge.Platt{A: 0, B: math.Log((bad + 1) / (good + 1))}
	if len(f) == 0 || slices.Max(f)-slices.Min(f) < 1e-9 {
		return p // one and the same confidence throughout: there is no slope
	}
	value := plattLoss(p, f, t)
	for range 200 { // some ten are enough
		next, loss, moved := plattStep(p, value, f, t)
		if !moved {
			break
		}
		p, value = next, loss
	}
	return p
}

// plattLoss is the negative log-likelihood, written so that nothing overflows.
func plattLoss(p judge.Platt, f, t []float64) float64 {
	sum := 0.0
	for i := range f {
		if z := p.A*f[i] + p.B; z >= 0 {
			sum += t[i]*z + math.Log1p(math.Exp(-z))
		} else {
			sum += (t[i]-1)*z + math.Log1p(math.Exp(z))
		}
	}
	return sum
}

// plattStep is one Newton step that lowers the loss; moved is false at the minimum.
func plattStep(p judge.Platt, value float64, f, t []float64) (next judge.Platt, loss float64, moved bool) {
	const ridge, flat, smallest = 1e-12, 1e-10, 1e-10
	h11, h22, h21, g1, g2 := ridge, ridge, 0.0, 0.0, 0.0
	for i := range f {
		up := 1 / (1 + math.Exp(p.A*f[i]+p.B)) // the probability
		d1, d2 := t[i]-up, up*(1-up)
		h11 += f[i] * f[i] * d2
		h22 += d2
		h21 += f[i] * d2
		g1 += f[i] * d1
		g2 += d1
	}
	if math.Abs(g1) < flat && math.Abs(g2) < flat {
		return p, value, false
	}
	det := h11*h22 - h21*h21
	da, db := -(h22*g1-h21*g2)/det, -(h11*g2-h21*g1)/det
	slope := g1*da + g2*db
	for step := 1.0; step >= smallest; step /= 2 {
		next = judge.Platt{A: p.A + step*da, B: p.B + step*db}
		if loss = plattLoss(next, f, t); loss < value+1e-4*step*slope {
			return next, loss, true
		}
	}
	return p, value, false
}
