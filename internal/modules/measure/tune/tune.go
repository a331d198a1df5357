// Package tune finds the minimum confidence at which a judge may be relied on, and certifies the risk of doing so.
//
// It must never certify a threshold on the cases that it was chosen on.
package tune

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/mathext"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
)

// Certification states whether the risk at a threshold was shown to be at most the target.
type Certification string

// The certifications.
const (
	// Certified: with the requested confidence, the risk is at most the target.
	Certified Certification = "certified"
	// NotCertifiable: there are too few approvals to show whether the risk is at most the target.
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
	// Risk is the rate of wrong approvals among the approvals on Test at Chosen; its Upper is the risk that they
	// certify. Groups is the number of their groups.
	Risk   eval.Rate `json:"risk"`
	Groups int       `json:"groups"`
	// Needed is how many approvals certify the target if none is wrong and each is in a separate group. More is how
	// many more on Test are needed to certify the target; 0 if it is certified.
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
	// NoneWrong assumes that none of them is wrong, AsSeen that the rate of wrong approvals stays the same. AsSeen is
	// nil if no number is enough.
	NoneWrong int  `json:"noneWrong"`
	AsSeen    *int `json:"asSeen,omitempty"`
}

// Candidate is one threshold. Risk.Upper is the bound that decides the choice.
type Candidate struct {
	eval.RiskPoint
	Holds bool `json:"holds"`
}

const maxCandidates = 10

// leastTarget is the smallest target. Certifying it takes three million approvals without a wrong one.
const leastTarget = 1e-6

// Tune chooses the lowest threshold at which, according to the split Cal, the share of wrong approvals is at most
// target. It certifies that threshold on Test alone: a single threshold, tested once, on groups that were not used to
// choose it.
//
// Target is from 1e-6 to below 1; the error names the argument that is out of range. Tune uses the model's own
// approvals, because the threshold is meant for minConfidence.
func Tune(cases []eval.Case, results []eval.Result, target float64, o eval.Options) (Tuning, error) {
	if !(target >= leastTarget && target < 1) {
		return Tuning{}, fmt.Errorf("eval: target risk is %v; give a share from %v to below 1, such as 0.05", target, leastTarget)
	}
	o = o.WithDefaults()
	part := func(s eval.Split, cases []eval.Case) ([]eval.RankedAnswer, int) {
		o := o
		o.Splits = []eval.Split{s}
		return eval.RankApprovals(eval.Join(cases, results, o).Rows)
	}
	cal, all := part(eval.Cal, cases)
	unseen, warning := eval.DropSeen(cases)
	test, _ := part(eval.Test, unseen)
	t := tuneThreshold(cal, all, test, target, o.Confidence)
	if warning != "" {
		t.Warnings = append(t.Warnings, warning)
	}
	return t, nil
}

// tuneThreshold chooses a threshold on cal, and certifies it on test. Both list approvals, the most certain first. all
// is the number of answers on Cal.
func tuneThreshold(cal []eval.RankedAnswer, all int, test []eval.RankedAnswer, target, confidence float64) Tuning {
	t := Tuning{TargetRisk: target, Confidence: confidence, Status: NotCertifiable}
	t.Needed = ApprovalsNeeded(0, target, confidence)
	t.More = t.Needed
	best := -1
	for i, s := range pickThresholds(eval.RiskSteps(cal), t.Needed) {
		c := Candidate{RiskPoint: s.Point(all, confidence)}
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

// pickThresholds picks steps at even intervals by the number of approvals kept. It begins with the strictest step that
// could certify the target, or that keeps half of the approvals if there are too few. It ends with the step that keeps
// all of them.
func pickThresholds(all []eval.RiskStep, needed int) []eval.RiskStep {
	if len(all) == 0 {
		return nil
	}
	n := all[len(all)-1].N
	needed = min(needed, (n+1)/2)
	var picked []eval.RiskStep
	for i := range maxCandidates {
		want := needed + (n-needed)*i/(maxCandidates-1)
		at, _ := slices.BinarySearchFunc(all, want, func(s eval.RiskStep, want int) int { return cmp.Compare(s.N, want) })
		if s := all[at]; len(picked) == 0 || picked[len(picked)-1].N != s.N {
			picked = append(picked, s)
		}
	}
	return picked
}

// certify tests the chosen threshold on the test cases.
func (t *Tuning) certify(test []eval.RankedAnswer) {
	kept := 0
	for kept < len(test) && test[kept].Score >= *t.Chosen {
		kept++
	}
	t.Risk.High, t.Risk.Upper = 1, 1
	if kept == 0 {
		t.Says = fmt.Sprintf("not certifiable: no approval of the split test reaches minConfidence %.6g, which was chosen on cal, and certificates come from test alone; it takes %d approvals, each in its own group, none wrong", *t.Chosen, t.More)
		return
	}
	steps := eval.RiskSteps(test[:kept])
	last := steps[len(steps)-1]
	t.Risk, t.Groups = eval.NewRate(last.Errors, last.N, last.Squares, t.Confidence), last.Groups
	t.More = t.moreFor(t.TargetRisk, false)
	if t.Groups < eval.FewGroups {
		t.Warnings = append(t.Warnings, fmt.Sprintf("the approvals of test are in %d groups; below %d, other groups can differ more than the bound says", t.Groups, eval.FewGroups))
	}
	wrong := fmt.Sprintf("%d of %d approvals of the split test are wrong (%d groups)", t.Risk.K, t.Risk.N, t.Groups)
	shown := fmt.Sprintf("they certify at most %s", eval.FormatPercent(t.Risk.Upper))
	switch {
	case t.More == 0:
		t.Status, t.Threshold = Certified, t.Chosen
		t.Says = fmt.Sprintf("certified: with minConfidence %.6g at most %.3g of the approvals are wrong: %s, which shows at most %s", *t.Chosen, t.TargetRisk, wrong, eval.FormatPercent(t.Risk.Upper))
		return
	case eval.LowerBound(t.Risk.Hits(), t.Risk.Draws, 1-t.Confidence) > t.TargetRisk:
		t.Status = Infeasible
		t.Says = fmt.Sprintf("infeasible: with minConfidence %.6g, %s: %s, which is more than %.3g; %s. More cases will not help: use another judge or another target", *t.Chosen, wrong, t.Risk.Bounds(), t.TargetRisk, shown)
	default:
		t.Says = fmt.Sprintf("not certifiable: with minConfidence %.6g, %s; %s. It needs %d more approvals, each in its own group, none wrong", *t.Chosen, wrong, shown, t.More)
	}
	t.addProspects()
}

// moreFor returns how many more draws certify a risk, assuming that none of them is wrong or, with asSeen, that the
// rate of wrong approvals stays the same.
func (t *Tuning) moreFor(risk float64, asSeen bool) int {
	hits, draws := t.Risk.Hits(), t.Risk.Draws
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

// ApprovalsNeeded returns how many approvals bring the exact upper bound of the risk down to target, if the given
// number of them is wrong. It is 59 with none wrong, for a target of 0.05 at a confidence of 0.95. Target and
// confidence are between 0 and 1.
func ApprovalsNeeded(wrong int, target, confidence float64) int {
	return leastCount(func(n int) bool { return showsRisk(float64(wrong), float64(n), target, confidence) })
}

// showsRisk reports whether the upper bound for k wrong approvals among n is at most target: at a risk of target, so
// few wrong approvals would be rare.
func showsRisk(k, n, target, confidence float64) bool {
	return n > k && mathext.RegIncBeta(n-k, k+1, 1-target) <= 1-confidence
}

// leastCount returns the smallest n >= 0 for which enough returns true; enough must be monotonic. It returns
// math.MaxInt if n would be above two billion.
func leastCount(enough func(n int) bool) int {
	if enough(0) {
		return 0
	}
	low, high := 0, 1
	for !enough(high) {
		if high > math.MaxInt32 {
			return math.MaxInt // the target is too close to 0
		}
		low, high = high, 2*high
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; enough(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// Text formats the result for a terminal.
func (t Tuning) Text(align eval.Align) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", t.Says)
	threshold := "-"
	if t.Threshold != nil {
		threshold = fmt.Sprintf("%.4g", *t.Threshold)
	}
	b.WriteString(align([][]string{
		{"status", string(t.Status), ""},
		{"target risk", eval.FormatPercent(t.TargetRisk), "at " + eval.FormatPercent(t.Confidence)},
		{"minConfidence", threshold, ""},
		{"approvals needed", fmt.Sprintf("%d in groups of their own, none wrong", t.Needed), fmt.Sprintf("%d more", t.More)},
	}))
	for _, w := range t.Warnings {
		fmt.Fprintf(&b, "\n! %s\n", w)
	}
	more := eval.Grid{Title: "More approvals on test, each of a group of its own, that certify", Head: []string{"at most", "none of them wrong", "as many wrong as so far"}}
	for _, p := range t.Prospects {
		seen := "never"
		if p.AsSeen != nil {
			seen = strconv.Itoa(*p.AsSeen)
		}
		more.Rows = append(more.Rows, []string{eval.FormatPercent(p.Risk), strconv.Itoa(p.NoneWrong), seen})
	}
	b.WriteString(more.Text(align))
	of := eval.Grid{Title: "Thresholds on cal", Head: []string{"at least", "coverage", "wrong approvals", "bound", ""}}
	for _, c := range t.Candidates {
		holds := "no"
		if c.Holds {
			holds = "holds"
		}
		of.Rows = append(of.Rows, []string{fmt.Sprintf("%.4f", c.Threshold), eval.FormatPercent(c.Coverage), c.Risk.String(), eval.FormatPercent(c.Risk.Upper), holds})
	}
	b.WriteString(of.Text(align))
	return b.String()
}
