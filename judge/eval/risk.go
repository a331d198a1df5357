package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

const maxPoints = 100

type rankedAnswer struct {
	score float64 // how certain
	wrong bool
}

func sortAnswers(all []rankedAnswer) {
	slices.SortFunc(all, func(a, b rankedAnswer) int { return cmp.Compare(b.score, a.score) })
}

func listAnswers(all []forecast) (of []rankedAnswer) {
	for _, f := range all {
		of = append(of, rankedAnswer{f.certainty(), f.leans != f.good})
	}
	sortAnswers(of)
	return of
}

func listApprovals(all []forecast) (of []rankedAnswer) {
	for _, f := range all {
		if f.leans {
			of = append(of, rankedAnswer{f.p, !f.good})
		}
	}
	sortAnswers(of)
	return of
}

type step struct {
	score   float64
	n       int // kept up to here
	errors  int
	before  int // kept before this run
	already int // errors before it
}

func riskSteps(sorted []rankedAnswer) []step {
	var all []step
	var at step
	for i, s := range sorted {
		at.n++
		if s.wrong {
			at.errors++
		}
		if i+1 == len(sorted) || sorted[i+1].score != s.score {
			at.score = s.score
			all = append(all, at)
			at.before, at.already = at.n, at.errors
		}
	}
	return all
}

// point is the step among so many answers.
func (s step) point(all int, confidence float64) RiskPoint {
	return RiskPoint{s.score, float64(s.n) / float64(all), newRate(s.errors, s.n, confidence)}
}

func riskCurve(sorted []rankedAnswer, confidence float64) *RiskCurve {
	n := len(sorted)
	if n == 0 {
		return nil
	}
	c := &RiskCurve{N: n}
	shown := 0
	for _, s := range riskSteps(sorted) {
		run, errs := float64(s.n-s.before), float64(s.errors-s.already)
		for j := 1; j <= s.n-s.before; j++ {
			c.AURC += (float64(s.already) + errs*float64(j)/run) / float64(s.before+j)
		}
		if s.n*maxPoints >= (shown+1)*n || s.n == n {
			shown = s.n * maxPoints / n
			c.Points = append(c.Points, s.point(n, confidence))
		}
	}
	c.AURC /= float64(n)
	wrong := 0
	for _, s := range sorted {
		if s.wrong {
			wrong++
		}
	}
	for i := 1; i <= wrong; i++ {
		c.Best += float64(i) / float64(n-wrong+i)
	}
	c.Best /= float64(n)
	return c
}

// Certification is how far a threshold could be shown to keep a risk.
type Certification string

// The certifications.
const (
	// Certified: with the confidence asked for, the risk is at most the target.
	Certified Certification = "certified"
	// NotCertifiable: the approvals are too few to show it, whether it holds or not.
	NotCertifiable Certification = "not_certifiable"
	// Infeasible: even the strictest threshold with enough approvals is shown to be above
	// the target. Another judge is needed, not more cases.
	Infeasible Certification = "infeasible"
)

// Tuning is the answer of Tune.
type Tuning struct {
	TargetRisk float64       `json:"targetRisk"`
	Confidence float64       `json:"confidence"`
	Status     Certification `json:"status"`
	// Says is the answer in a sentence.
	Says string `json:"says"`
	// Threshold for minConfidence; nil when none can be recommended.
	Threshold *float64 `json:"threshold,omitempty"`
	// Coverage is the share of the model's answers that the threshold lets approve.
	Coverage float64 `json:"coverage"`
	// Risk is the rate of wrong ones among the approvals on the cases that certify:
	// the held-out ones when there are any.
	Risk    Rate `json:"risk"`
	HeldOut bool `json:"heldOut"`
	// Needed is how many approvals it takes with none wrong; More how many more, none of
	// them wrong, until the bound at the best candidate holds. 0 when it holds.
	Needed int `json:"needed"`
	More   int `json:"more"`
	// Candidates are the thresholds looked at, strictest first. They are placed by how
	// many approvals they keep, not by labels, and share the error probability
	// (Bonferroni) when there are no held-out cases.
	Candidates []Candidate `json:"candidates"`
}

// Candidate is one threshold.
type Candidate struct {
	RiskPoint
	// Bound is the upper bound that counts for the choice.
	Bound float64 `json:"bound"`
	Holds bool    `json:"holds"`
}

const maxCandidates = 10

// leastTarget is a risk that takes three million approvals without a wrong one to show.
const leastTarget = 1e-6

// Tune looks for the lowest threshold at which the share of wrong ones among the
// approvals is at most target, on cases of the split Cal, and certifies it on those of
// Test when there are any. Target is from 1e-6 to below 1; the error says what is out of
// range. It looks at the model's own approvals: minConfidence is what the threshold is
// for.
func Tune(cases []Case, results []Result, target float64, o Options) (Tuning, error) {
	if !(target >= leastTarget && target < 1) {
		return Tuning{}, fmt.Errorf("eval: target risk is %v; give a share from %v to below 1, such as 0.05", target, leastTarget)
	}
	if err := o.Validate(); err != nil {
		return Tuning{}, err
	}
	o = o.withDefaults()
	part := func(s Split) ([]rankedAnswer, int) {
		o := o
		o.Splits = []Split{s}
		all, _ := listForecasts(joinResults(cases, results, o).rows)
		return listApprovals(all), len(all)
	}
	cal, all := part(Cal)
	test, _ := part(Test)
	t := tuneThreshold(cal, all, test, target, o.Confidence)
	if says := sharedGroups(cases); says != "" && t.HeldOut {
		t.Says += "; " + says
	}
	return t, nil
}

// tuneThreshold works on approvals, the surest first; all is the number of answers.
func tuneThreshold(cal []rankedAnswer, all int, test []rankedAnswer, target, confidence float64) Tuning {
	t := Tuning{TargetRisk: target, Confidence: confidence, Status: NotCertifiable, HeldOut: len(test) > 0}
	t.Needed = ApprovalsNeeded(0, target, confidence)
	candidates := pickThresholds(riskSteps(cal), t.Needed)
	level := confidence
	if !t.HeldOut && len(candidates) > 0 {
		level = 1 - (1-confidence)/float64(len(candidates))
	}
	best := -1
	for i, s := range candidates {
		c := Candidate{RiskPoint: s.point(all, confidence), Bound: UpperBound(s.errors, s.n, level)}
		c.Holds = c.Bound <= target
		if c.Holds {
			best = i
		}
		t.Candidates = append(t.Candidates, c)
	}
	switch {
	case best >= 0 && t.HeldOut:
		t.confirm(t.Candidates[best], test)
	case best >= 0:
		c := t.Candidates[best]
		t.Status, t.Threshold, t.Coverage, t.Risk = Certified, new(c.Threshold), c.Coverage, c.Risk
		t.Risk.Upper = c.Bound
		t.Says = fmt.Sprintf("certified: with minConfidence %.6g at most %.3g of the approvals are wrong (bound %.4g over %d approvals, %d wrong; %d thresholds shared the error probability)",
			c.Threshold, target, c.Bound, c.Risk.N, c.Risk.K, len(t.Candidates))
	default:
		t.decline(riskSteps(cal), level)
	}
	return t
}

// pickThresholds picks by the number of approvals kept: from the strictest that could
// certify at all, evenly down to all of them.
func pickThresholds(all []step, needed int) []step {
	if len(all) == 0 || all[len(all)-1].n < needed {
		return nil
	}
	n := all[len(all)-1].n
	var picked []step
	for i := range maxCandidates {
		want := needed + (n-needed)*i/(maxCandidates-1)
		at, _ := slices.BinarySearchFunc(all, want, func(s step, want int) int { return cmp.Compare(s.n, want) })
		if s := all[at]; len(picked) == 0 || picked[len(picked)-1].n != s.n {
			picked = append(picked, s)
		}
	}
	return picked
}

func (t *Tuning) confirm(c Candidate, test []rankedAnswer) {
	n, wrong := 0, 0
	for _, s := range test {
		if s.score >= c.Threshold {
			n++
			if s.wrong {
				wrong++
			}
		}
	}
	t.Risk, t.Coverage = newRate(wrong, n, t.Confidence), c.Coverage
	switch {
	case t.Risk.Upper <= t.TargetRisk:
		t.Status, t.Threshold = Certified, new(c.Threshold)
		t.Says = fmt.Sprintf("certified: with minConfidence %.6g at most %.3g of the approvals are wrong (bound %.4g over %d approvals of the test cases, %d wrong)",
			c.Threshold, t.TargetRisk, t.Risk.Upper, n, wrong)
	case LowerBound(wrong, n, t.Confidence) > t.TargetRisk:
		t.Status = Infeasible
		t.Says = fmt.Sprintf("infeasible: minConfidence %.6g, chosen on the calibration cases, lets %d wrong ones through among %d approvals of the test cases, shown to be more than %.3g; the two parts differ, or the judge is not good enough",
			c.Threshold, wrong, n, t.TargetRisk)
	default:
		t.More = approvalsNeeded(wrong, n, t.TargetRisk, t.Confidence)
		t.Says = fmt.Sprintf("not certifiable: minConfidence %.6g has %d approvals on the test cases, %d wrong; it needs %d more approvals, none wrong", c.Threshold, n, wrong, t.More)
	}
}

func (t *Tuning) decline(all []step, level float64) {
	if len(all) == 0 {
		t.More = t.Needed
		t.Says = fmt.Sprintf("not certifiable: the model approved none of the calibration cases; it needs %d more approvals, none wrong", t.More)
		return
	}
	candidates := t.Candidates
	bad := len(candidates) > 0
	for _, c := range candidates {
		bad = bad && LowerBound(c.Risk.K, c.Risk.N, level) > t.TargetRisk
	}
	if bad {
		first := candidates[0]
		t.Status, t.Risk = Infeasible, first.Risk
		t.Says = fmt.Sprintf("infeasible: at every threshold more than %.3g of the approvals are shown to be wrong; already among the %d surest %d are. More cases will not help, another judge may", t.TargetRisk, first.Risk.N, first.Risk.K)
		return
	}
	t.More = math.MaxInt
	for _, s := range thinSteps(all) {
		if m := approvalsNeeded(s.errors, s.n, t.TargetRisk, level); m < t.More || (m == t.More && s.n > t.Risk.N) {
			t.More, t.Risk = m, newRate(s.errors, s.n, t.Confidence)
		}
	}
	t.Says = fmt.Sprintf("not certifiable: the best threshold has %d approvals, %d wrong; it needs %d more approvals, none wrong (%d with none wrong would do)", t.Risk.N, t.Risk.K, t.More, t.Needed)
}

// thinSteps keeps about fifty steps and the last: each costs a search.
func thinSteps(all []step) []step {
	const kept = 50
	var some []step
	for i, s := range all {
		if i%(len(all)/kept+1) == 0 || i+1 == len(all) {
			some = append(some, s)
		}
	}
	return some
}

func approvalsNeeded(wrong, n int, target, confidence float64) int {
	return max(ApprovalsNeeded(wrong, target, confidence)-n, 0)
}
