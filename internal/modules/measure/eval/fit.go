package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/judge"
)

// Fitting is one calibration, with its quality on cases that it was not fitted on.
type Fitting struct {
	// Calibration can be read by judge.ParseCalibrations; nil if none could be fitted.
	Calibration *judge.Calibration `json:"calibration,omitempty"`
	// Model, PromptDigest and CriteriaDigest identify what the calibration is for.
	Model          string `json:"model"`
	PromptDigest   string `json:"promptDigest"`
	CriteriaDigest string `json:"criteriaDigest"`
	Fitted         int    `json:"fitted"` // number of approvals in the split cal
	Groups         int    `json:"groups"` // number of groups with such an approval
	Right          int    `json:"right"`  // number of these approvals that are right
	// Before and After score the approvals of the split test: Before with the confidence that the model stated, After
	// with the calibrated one. Both are nil if there are no such approvals; After is also nil without a Calibration.
	Before *ConfidenceScore `json:"before,omitempty"`
	After  *ConfidenceScore `json:"after,omitempty"`
	// Warnings describe what weakens the calibration, or why there is none.
	Warnings []string `json:"warnings,omitempty"`
}

// ConfidenceScore measures how well the confidences of approvals match the share that is right.
type ConfidenceScore struct {
	N      int     `json:"n"`
	Groups int     `json:"groups"`
	Right  Rate    `json:"right"`
	Mean   float64 `json:"mean"` // confidence
	Brier  float64 `json:"brier"`
	// ECE is the expected calibration error over Bins of at least twenty approvals each. Because of random variation,
	// it is above 0 even for a perfect fit.
	ECE  Estimate `json:"ece"`
	Bins []Bin    `json:"bins"`
}

// leastBin is the minimum number of approvals in a bin, unless there are fewer in total.
const leastBin = 20

type bindingKey struct{ model, prompt, criteria string }

// Calibrate fits a calibration for each combination of model, prompt and criteria. It fits on the model's approvals in
// the split Cal, and measures on those in Test whose groups have no case in Cal. dataset and fitted (a date) are copied
// into the calibration.
//
// Refusals are ignored, because minConfidence applies only to approvals. A model that is right and confident in its
// refusals would otherwise make its approvals look reliable too. An approval is right if the case should be approved,
// whatever policy decided afterwards.
func Calibrate(cases []Case, results []Result, dataset, fitted string, o Options) []Fitting {
	o = o.WithDefaults()
	part := func(s Split, cases []Case) map[bindingKey][]forecast {
		o := o
		o.Splits = []Split{s}
		return listStated(Join(cases, results, o).Rows)
	}
	unseen, warning := DropSeen(cases)
	cal, test := part(Cal, cases), part(Test, unseen)
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
		sizes := groupSizes{}
		for _, s := range cal[key] {
			sizes.add(s.group)
			f.Right += int(s.value())
		}
		f.Groups = len(sizes)
		f.fit(cal[key], dataset, fitted)
		f.measure(test[key], o)
		if warning != "" {
			f.Warnings = append(f.Warnings, warning)
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b Fitting) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.PromptDigest, b.PromptDigest), cmp.Compare(a.CriteriaDigest, b.CriteriaDigest))
	})
	return all
}

// listStated lists approvals, with the confidence that the model stated, by the binding of their calibration.
func listStated(rows []Row) map[bindingKey][]forecast {
	all := map[bindingKey][]forecast{}
	group, last := uint32(0), ""
	for _, w := range rows {
		r := w.Result
		if w.Group != last {
			group, last = group+1, w.Group
		}
		if _, ok := approvalProbability(r); !ok || !LeansToApprove(r) || r.Stated == nil || !(*r.Stated >= 0 && *r.Stated <= 1) {
			continue
		}
		key := bindingKey{r.Model, r.PromptDigest, r.CriteriaDigest}
		all[key] = append(all[key], forecast{p: *r.Stated, good: !w.MustNot(), group: group, leans: true})
	}
	return all
}

// fit sets Calibration. If a calibration would be misleading, it adds a warning and leaves Calibration nil.
func (f *Fitting) fit(all []forecast, dataset, fitted string) {
	warn := func(format string, args ...any) { f.Warnings = append(f.Warnings, fmt.Sprintf(format, args...)) }
	switch {
	case f.Model == "" || f.PromptDigest == "" || f.CriteriaDigest == "":
		warn("the results do not say for which model, prompt and criteria they hold, so nothing can be bound to them")
		return
	case f.Groups < FewGroups:
		warn("the approvals of the split cal are in %d groups; %d are needed", f.Groups, FewGroups)
		return
	case f.Right == 0:
		warn("all %d approvals of the split cal are wrong: no confidence makes them better", len(all))
		return
	}
	c := judge.Calibration{Model: f.Model, PromptDigest: f.PromptDigest, CriteriaDigest: f.CriteriaDigest, N: len(all), Dataset: dataset, Fitted: fitted}
	p, good := make([]float64, len(all)), make([]bool, len(all))
	for i, s := range all {
		p[i], good[i] = s.p, s.good
	}
	if c.Platt = FitPlatt(p, good); c.Platt.A > 0 {
		warn("the model is no more often right the surer it is (a = %.3g): every approval gets the share that is right", c.Platt.A)
		c.Platt = judge.Platt{B: math.Log(float64(len(all)-f.Right+1) / float64(f.Right+1))}
	}
	if _, err := judge.NewCalibrations([]judge.Calibration{c}); err != nil {
		warn("the calibration is not usable: %v", err)
		return
	}
	f.Calibration = &c
}

func (f *Fitting) measure(test []forecast, o Options) {
	if len(test) == 0 {
		f.Warnings = append(f.Warnings, "there are no approvals in the split test, so the calibration could not be tested")
		return
	}
	f.Before = scoreConfidence(test, func(p float64) float64 { return p }, o)
	if c := f.Calibration; c != nil {
		f.After = scoreConfidence(test, c.Apply, o)
		c.Approvals = &judge.ApprovalFit{N: f.After.N, Groups: f.After.Groups, Mean: f.After.Mean, Right: *f.After.Right.Value, RightLow: f.After.Right.Low, ECE: *f.After.ECE.Value}
		if f.After.Brier > f.Before.Brier {
			f.Warnings = append(f.Warnings, fmt.Sprintf("on the split test it makes the Brier score worse: %.4g before, %.4g after", f.Before.Brier, f.After.Brier))
		}
	}
}

// scoreConfidence scores approvals; there must be at least one.
func scoreConfidence(all []forecast, confidence func(float64) float64, o Options) *ConfidenceScore {
	sorted, dense := slices.Clone(all), map[uint32]uint32{}
	var squares float64
	sizes := groupSizes{}
	for i, f := range sorted {
		if _, ok := dense[f.group]; !ok {
			dense[f.group] = uint32(len(dense)) //nolint:gosec // at most the number of approvals
		}
		sorted[i].p, sorted[i].group = confidence(f.p), dense[f.group]
		squares += sizes.add(f.group)
	}
	slices.SortStableFunc(sorted, byProbability)
	s := &ConfidenceScore{N: len(all), Groups: len(sizes), Bins: binForecasts(sorted, max(1, min(maxBins, len(all)/leastBin)), o.Confidence)}
	right, n := 0, float64(len(all))
	for _, f := range sorted {
		s.Mean += f.p / n
		s.Brier += f.square() / n
		if f.good {
			right++
		}
	}
	ece := 0.0
	for _, b := range s.Bins {
		ece += math.Abs(b.Mean-*b.Share.Value) * float64(b.N) / n
	}
	s.ECE = bootstrapECE(sorted, s.Bins, s.Groups, o).Estimate(&ece, o.Confidence)
	s.Right = NewRate(right, len(all), squares, o.Confidence)
	return s
}

// bootstrapECE resamples groups and keeps the bins fixed.
func bootstrapECE(sorted []forecast, bins []Bin, groups int, o Options) *Sample {
	ece := &Sample{}
	resampleGroups(groups, o.Resamples, o.Seed, func(drawn []uint32) {
		rest, sum, n := sorted, 0.0, 0.0
		for _, b := range bins {
			gap := 0.0
			for _, f := range rest[:b.N] {
				gap += float64(drawn[f.group]) * (f.p - f.value())
				n += float64(drawn[f.group])
			}
			sum += math.Abs(gap)
			rest = rest[b.N:]
		}
		ece.Add(ratioOf(sum, n))
	})
	return ece
}

// FitPlatt returns the maximum-likelihood sigmoid for Platt's smoothed targets (Platt 1999), by Newton's method with
// backtracking (Lin, Lin and Weng 2007, "A note on Platt's probabilistic outputs for support vector machines").
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
		return p // all confidences are equal, so there is no slope
	}
	value := plattLoss(p, f, t)
	for range 200 { // about ten are enough
		next, loss, moved := plattStep(p, value, f, t)
		if !moved {
			break
		}
		p, value = next, loss
	}
	return p
}

// plattLoss returns the negative log-likelihood, computed without overflow.
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

// plattStep makes one Newton step that lowers the loss; moved is false at the minimum.
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
