package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

const maxPoints = 100

type rankedAnswer struct {
	score float64 // certainty
	wrong bool
	group uint32
}

func sortAnswers(all []rankedAnswer) {
	slices.SortStableFunc(all, func(a, b rankedAnswer) int { return cmp.Compare(b.score, a.score) })
}

func listAnswers(all []forecast) (of []rankedAnswer) {
	for _, f := range all {
		of = append(of, rankedAnswer{f.certainty(), f.leans != f.good, f.group})
	}
	sortAnswers(of)
	return of
}

func listApprovals(all []forecast) (of []rankedAnswer) {
	for _, f := range all {
		if f.leans {
			of = append(of, rankedAnswer{f.p, !f.good, f.group})
		}
	}
	sortAnswers(of)
	return of
}

type step struct {
	score   float64
	n       int // answers kept up to here
	errors  int
	before  int     // answers kept before this run
	already int     // errors before this run
	squares float64 // sum of squares of the numbers kept by group
	groups  int
}

func riskSteps(sorted []rankedAnswer) []step {
	var all []step
	var at step
	sizes := groupSizes{}
	for i, s := range sorted {
		at.n++
		at.squares += sizes.add(s.group)
		at.groups = len(sizes)
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

// point returns the risk at the step; all is the total number of answers.
func (s step) point(all int, confidence float64) RiskPoint {
	return RiskPoint{s.score, float64(s.n) / float64(all), newRate(s.errors, s.n, s.squares, confidence)}
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

// Certification reports whether a threshold was shown to keep a risk.
type Certification string

// The certifications.
const (
	// Certified: with the requested confidence, the risk is at most the target.
	Certified Certification = "certified"
	// NotCertifiable: there are too few approvals to show it, whether it holds or not.
	NotCertifiable Certification = "not_certifiable"
	// Infeasible: even at the best threshold, the risk is shown to be above the target. More cases do not help; use
	// another judge or another target.
	Infeasible Certification = "infeasible"
)

// Tuning is the result of Tune.
type Tuning struct {
	TargetRisk float64       `json:"targetRisk"`
	Confidence float64       `json:"confidence"`
	Status     Certification `json:"status"`
	// Says states the result in a sentence; Warnings describe what weakens it.
	Says     string   `json:"says"`
	Warnings []string `json:"warnings,omitempty"`
	// Threshold is the recommended minConfidence; nil if none can be recommended.
	Threshold *float64 `json:"threshold,omitempty"`
	// Chosen is the threshold that was tested on Test, whether it was certified or not; nil if the model approved
	// nothing on Cal.
	Chosen *float64 `json:"chosen,omitempty"`
	// Coverage is the share of the model's answers on Cal that are approvals at Chosen.
	Coverage float64 `json:"coverage"`
	// Risk is the rate of wrong ones among the approvals of Test at Chosen; its Upper is the risk that they certify.
	// Groups is the number of groups of these approvals.
	Risk   Rate `json:"risk"`
	Groups int  `json:"groups"`
	// Needed is how many approvals certify the target if none is wrong and each is in a separate group. More is how
	// many more on Test are needed until the target is certified; 0 if it is.
	Needed int `json:"needed"`
	More   int `json:"more"`
	// Prospects show which risks more approvals on Test would certify.
	Prospects []Prospect `json:"prospects,omitempty"`
	// Candidates are the thresholds compared on Cal, strictest first. They are chosen by how many approvals they
	// keep, not by labels.
	Candidates []Candidate `json:"candidates"`
}

// Prospect is how many more approvals, each in a separate group, certify a risk.
type Prospect struct {
	Risk float64 `json:"risk"`
	// NoneWrong assumes that none of them is wrong, AsSeen that the rate of wrong ones stays as it is. AsSeen is nil
	// if no number is enough.
	NoneWrong int  `json:"noneWrong"`
	AsSeen    *int `json:"asSeen,omitempty"`
}

// Candidate is one threshold. Risk.Upper is the bound that decides the choice.
type Candidate struct {
	RiskPoint
	Holds bool `json:"holds"`
}

const maxCandidates = 10

// leastTarget is the smallest target: showing it takes three million approvals without a wrong one.
const leastTarget = 1e-6

// Tune chooses the lowest threshold at which, according to the split Cal, the share of wrong approvals is at most
// target. It certifies that threshold on Test alone: a single threshold, tested once, on groups that the choice has
// not used.
//
// Target is from 1e-6 to below 1; the error names the argument that is out of range. Tune uses the model's own
// approvals, because the threshold is meant for minConfidence.
func Tune(cases []Case, results []Result, target float64, o Options) (Tuning, error) {
	if !(target >= leastTarget && target < 1) {
		return Tuning{}, fmt.Errorf("eval: target risk is %v; give a share from %v to below 1, such as 0.05", target, leastTarget)
	}
	o = o.withDefaults()
	part := func(s Split, cases []Case) ([]rankedAnswer, int) {
		o := o
		o.Splits = []Split{s}
		all, _ := listForecasts(joinResults(cases, results, o).rows)
		return listApprovals(all), len(all)
	}
	cal, all := part(Cal, cases)
	unseen, left := dropSeen(cases)
	test, _ := part(Test, unseen)
	t := tuneThreshold(cal, all, test, target, o.Confidence)
	if left > 0 {
		t.Warnings = append(t.Warnings, leftOut(left))
	}
	return t, nil
}

// dropSeen omits cases of Test whose group has a case in Cal.
func dropSeen(cases []Case) (unseen []Case, left int) {
	seen := map[string]bool{}
	for _, c := range cases {
		if c.Split == Cal {
			seen[c.GroupKey()] = true
		}
	}
	for _, c := range cases {
		if c.Split == Test && seen[c.GroupKey()] {
			left++
			continue
		}
		unseen = append(unseen, c)
	}
	return unseen, left
}

func leftOut(cases int) string {
	return fmt.Sprintf("%d cases of test are left out: cal has cases of their groups (gavel eval lint lists them)", cases)
}

// tuneThreshold takes approvals with the most certain first; all is the number of answers on Cal.
func tuneThreshold(cal []rankedAnswer, all int, test []rankedAnswer, target, confidence float64) Tuning {
	t := Tuning{TargetRisk: target, Confidence: confidence, Status: NotCertifiable}
	t.Needed = ApprovalsNeeded(0, target, confidence)
	t.More = t.Needed
	best := -1
	for i, s := range pickThresholds(riskSteps(cal), t.Needed) {
		c := Candidate{RiskPoint: s.point(all, confidence)}
		c.Holds = c.Risk.Upper <= target
		t.Candidates = append(t.Candidates, c)
		if best < 0 || c.Holds || (!t.Candidates[best].Holds && c.Risk.Upper <= t.Candidates[best].Risk.Upper) {
			best = i
		}
	}
	if best < 0 {
		t.Says = "not certifiable: the model approved none of the cases of the split cal, so there is no threshold to certify"
		return t
	}
	t.Chosen, t.Coverage = new(t.Candidates[best].Threshold), t.Candidates[best].Coverage
	t.certify(test)
	return t
}

// pickThresholds picks steps at even intervals by the number of approvals kept. It begins with the strictest that
// could certify (or that keeps half, if there are too few) and ends with all of them.
func pickThresholds(all []step, needed int) []step {
	if len(all) == 0 {
		return nil
	}
	n := all[len(all)-1].n
	needed = min(needed, (n+1)/2)
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

// certify tests the chosen threshold on the test cases.
func (t *Tuning) certify(test []rankedAnswer) {
	kept := 0
	for kept < len(test) && test[kept].score >= *t.Chosen {
		kept++
	}
	t.Risk.High, t.Risk.Upper = 1, 1
	if kept == 0 {
		t.Says = fmt.Sprintf("not certifiable: no approval of the split test reaches minConfidence %.6g, which was chosen on cal, and certificates come from test alone; it takes %d approvals, each in its own group, none wrong", *t.Chosen, t.More)
		return
	}
	steps := riskSteps(test[:kept])
	last := steps[len(steps)-1]
	t.Risk, t.Groups = newRate(last.errors, last.n, last.squares, t.Confidence), last.groups
	t.More = t.moreFor(t.TargetRisk, false)
	if t.Groups < fewGroups {
		t.Warnings = append(t.Warnings, fmt.Sprintf("the approvals of test are in %d groups; below %d, other groups can exceed the bound", t.Groups, fewGroups))
	}
	wrong := fmt.Sprintf("%d of %d approvals of the split test are wrong (%d groups)", t.Risk.K, t.Risk.N, t.Groups)
	shown := fmt.Sprintf("they certify at most %s", formatPercent(t.Risk.Upper))
	switch {
	case t.More == 0:
		t.Status, t.Threshold = Certified, t.Chosen
		t.Says = fmt.Sprintf("certified: with minConfidence %.6g at most %.3g of the approvals are wrong: %s, which shows at most %s", *t.Chosen, t.TargetRisk, wrong, formatPercent(t.Risk.Upper))
		return
	case lowerBound(t.Risk.hits(), t.Risk.Draws, 1-t.Confidence) > t.TargetRisk:
		t.Status = Infeasible
		t.Says = fmt.Sprintf("infeasible: with minConfidence %.6g, %s: %s, which is more than %.3g; %s. More cases will not help: use another judge or another target", *t.Chosen, wrong, t.Risk.Bounds(), t.TargetRisk, shown)
	default:
		t.Says = fmt.Sprintf("not certifiable: with minConfidence %.6g, %s; %s. It needs %d more approvals, each in its own group, none wrong", *t.Chosen, wrong, shown, t.More)
	}
	t.addProspects()
}

// moreFor returns how many more draws certify a risk, assuming that none of them is wrong or that the rate stays as
// it is.
func (t *Tuning) moreFor(risk float64, asSeen bool) int {
	hits, draws := t.Risk.hits(), t.Risk.Draws
	return leastCount(func(more int) bool {
		wrong, all := hits, draws+float64(more)
		if asSeen {
			wrong = *t.Risk.Value * all
		}
		return showsRisk(wrong, all, risk, t.Confidence)
	})
}

func (t *Tuning) addProspects() {
	risks := []float64{t.TargetRisk}
	for _, risk := range []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5} {
		if risk > t.TargetRisk && risk < t.Risk.Upper {
			risks = append(risks, risk)
		}
	}
	for _, risk := range risks {
		p := Prospect{Risk: risk, NoneWrong: t.moreFor(risk, false)}
		if *t.Risk.Value < risk {
			if more := t.moreFor(risk, true); more < math.MaxInt {
				p.AsSeen = &more
			}
		}
		t.Prospects = append(t.Prospects, p)
	}
}
