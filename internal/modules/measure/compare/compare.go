// Package compare compares two runs of judges over the same cases.
//
// It must never report a difference as a regression if chance can explain it.
package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// Comparison describes how a second judge (after) differs from a first one (before) on the cases that both answered.
type Comparison struct {
	Options eval.Options `json:"options"`
	// Compared is false if too many cases have no outcome from one or both judges.
	Compared    bool     `json:"compared"`
	NotCompared string   `json:"notCompared,omitempty"`
	Notes       []string `json:"notes"`
	// Pairs is the number of cases with an outcome from both judges, and Groups the number of their groups. Unpaired is
	// the number of cases with an outcome from only one judge, or from neither.
	Pairs    int    `json:"pairs"`
	Groups   int    `json:"groups"`
	Unpaired int    `json:"unpaired"`
	Digest   string `json:"digest"` // of the cases, as in Counts
	// Right compares whether the outcome is exactly right, FalseApprove whether a case that must not be approved was
	// correctly refused. In both, B counts pairs that got worse, C pairs that got better.
	Right        McNemarTest `json:"right"`
	FalseApprove McNemarTest `json:"falseApprove"`
	// Differences are the changes in figures, after minus before, with paired bootstrap intervals.
	Differences []Difference `json:"differences"`
	// Changed lists cases with a different outcome, new false approvals first.
	Changed        []Change `json:"changed"`
	ChangedLeftOut int      `json:"changedLeftOut,omitempty"`
	// Regression reports that the second judge is significantly worse (at 1 - Confidence) in false approvals or in
	// right outcomes. Says states the result in a sentence.
	Regression bool   `json:"regression"`
	Says       string `json:"says"`
}

// McNemarTest is McNemar's exact test over pairs, with each group as one draw: under the null hypothesis, the pairs
// of a group are exchanged all together or not at all. If each group has one case, it is McNemar's own test.
type McNemarTest struct {
	N int `json:"n"` // pairs
	B int `json:"b"` // right before, wrong after
	C int `json:"c"` // wrong before, right after
	// P is two-sided; PWorse is the one-sided p-value of "after is not worse".
	P      float64 `json:"p"`
	PWorse float64 `json:"pWorse"`
}

// Difference is the change of one figure.
type Difference struct {
	Name   string        `json:"name"` // falseApprove, escalation, accuracy, gateAccuracy or kappa
	Before *float64      `json:"before,omitempty"`
	After  *float64      `json:"after,omitempty"`
	Change eval.Estimate `json:"change"`
}

// Change is one case with a different outcome.
type Change struct {
	Case     string        `json:"case"`
	Tags     []string      `json:"tags,omitempty"`
	Expected judge.Outcome `json:"expected"`
	Before   judge.Outcome `json:"before"`
	After    judge.Outcome `json:"after"`
}

// McNemar returns the exact p-values for b pairs that got worse and c that got better (McNemar 1947). The exact test is
// that of b+c tosses of a fair coin.
func McNemar(b, c int) (twoSided, worse float64) {
	tail := func(k int) float64 { // k or more of b+c
		if k <= 0 {
			return 1
		}
		return mathext.RegIncBeta(float64(k), float64(b+c-k)+1, 0.5)
	}
	return min(1, 2*tail(max(b, c))), tail(b)
}

// Compare pairs the results of two judges on the same cases.
func Compare(cases []eval.Case, before, after []eval.Result, o eval.Options) Comparison {
	o = o.WithDefaults()
	first, second := eval.Join(cases, before, o), eval.Join(cases, after, o)
	pairs := pairRows(first.Rows, second.Rows)
	c := Comparison{Options: o, Pairs: len(pairs), Digest: first.Counts.Digest}
	for i, p := range pairs {
		if i == 0 || p.before.Group != pairs[i-1].before.Group {
			c.Groups++
		}
	}
	c.Unpaired = len(first.Cases) - len(pairs)
	c.Right = testMcNemar(pairs, func(eval.Row) bool { return true }, eval.Row.IsExact)
	c.FalseApprove = testMcNemar(pairs, eval.Row.MustNot, func(w eval.Row) bool { return !w.FalseApprove() })
	c.Differences = computeDifferences(pairs, o)
	c.Changed, c.ChangedLeftOut = listChanges(pairs, maxChanges)
	c.conclude(first.Counts, second.Counts)
	return c
}

type pairing struct{ before, after eval.Row }

// pairRows pairs the rows of two judges by case.
func pairRows(first, second []eval.Row) []pairing {
	at := make(map[string]int, len(second))
	for i, w := range second {
		at[w.Case.ID] = i
	}
	var pairs []pairing
	for _, w := range first {
		if j, ok := at[w.Case.ID]; ok {
			pairs = append(pairs, pairing{w, second[j]})
		}
	}
	return pairs
}

func testMcNemar(pairs []pairing, counts, right func(eval.Row) bool) McNemarTest {
	var t McNemarTest
	var worse []int // by group: pairs that got worse minus pairs that got better
	group := ""
	for _, p := range pairs {
		if !counts(p.before) {
			continue
		}
		if t.N == 0 || p.before.Group != group {
			group, worse = p.before.Group, append(worse, 0)
		}
		t.N++
		switch was, is := right(p.before), right(p.after); {
		case was && !is:
			t.B++
			worse[len(worse)-1]++
		case !was && is:
			t.C++
			worse[len(worse)-1]--
		}
	}
	t.P, t.PWorse = flipGroups(worse)
	return t
}

// flipGroups returns exact p-values for the sum of the parts if each part could equally have had the opposite sign.
// twoSided is the two-sided p-value; larger is the probability of a sum at least as large.
func flipGroups(parts []int) (twoSided, larger float64) {
	sum, reach, alone := 0, 0, [2]int{}
	for _, d := range parts {
		sum, reach = sum+d, reach+max(d, -d)
		switch d {
		case 1:
			alone[0]++
		case -1:
			alone[1]++
		}
	}
	if reach == alone[0]+alone[1] {
		return McNemar(alone[0], alone[1])
	}
	chance := make([]float64, 2*reach+1) // of each sum, starting at -reach
	chance[reach] = 1
	next, so := slices.Clone(chance), 0
	for _, d := range parts {
		if d = max(d, -d); d == 0 {
			continue
		}
		clear(next[reach-so-d : reach+so+d+1])
		for i := reach - so; i <= reach+so; i++ {
			next[i-d] += chance[i] / 2
			next[i+d] += chance[i] / 2
		}
		chance, next, so = next, chance, so+d
	}
	tail := func(from int) (p float64) {
		for _, c := range chance[reach+from:] {
			p += c
		}
		return min(p, 1)
	}
	return min(1, 2*tail(max(sum, -sum))), tail(sum)
}

func computeDifferences(pairs []pairing, o eval.Options) []Difference {
	before, after := make([]eval.Row, len(pairs)), make([]eval.Row, len(pairs))
	for i, p := range pairs {
		before[i], after[i] = p.before, p.after
	}
	samples := make([]eval.Sample, len(eval.TableFigures))
	eval.ResampleTables(before, after, o, func(was, is *eval.Table) {
		for i, f := range eval.TableFigures {
			samples[i].Add(subtractFigures(f.Of(is), f.Of(was)))
		}
	})
	was, is := eval.NewTable(before), eval.NewTable(after)
	var all []Difference
	for i, f := range eval.TableFigures {
		d := Difference{Name: f.Name, Before: f.Of(&was), After: f.Of(&is)}
		d.Change = samples[i].Estimate(subtractFigures(d.After, d.Before), o.Confidence)
		all = append(all, d)
	}
	return all
}

func subtractFigures(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return new(*a - *b)
}

// maxChanges limits how many changed cases a comparison lists, maxShown how many a table shows.
const (
	maxChanges = 1000
	maxShown   = 20
)

// listChanges lists changed outcomes, new false approvals first.
func listChanges(pairs []pairing, most int) (all []Change, leftOut int) {
	var other []pairing
	for _, p := range pairs {
		if p.before.Got != p.after.Got {
			other = append(other, p)
		}
	}
	slices.SortStableFunc(other, func(a, b pairing) int {
		return cmp.Or(cmp.Compare(eval.GradeOutcome(b.after)-eval.GradeOutcome(b.before), eval.GradeOutcome(a.after)-eval.GradeOutcome(a.before)), cmp.Compare(a.before.Case.ID, b.before.Case.ID))
	})
	leftOut = max(len(other)-most, 0)
	all = []Change{}
	for _, p := range other[:len(other)-leftOut] {
		all = append(all, Change{
			Case: p.before.Case.ID, Tags: p.before.Case.Tags,
			Expected: p.before.Expect, Before: p.before.Got, After: p.after.Got,
		})
	}
	return all, leftOut
}

func (c *Comparison) conclude(before, after eval.Counts) {
	alpha := 1 - c.Options.Confidence
	alpha = math.Round(alpha*1e12) / 1e12
	lost := max(c.Unpaired-before.Excluded-after.Excluded, 0)
	c.Compared = c.Pairs > 0 && float64(lost) <= *c.Options.MaxFailures*float64(before.Cases)
	c.Notes = []string{
		"Regression: McNemar's exact test, one-sided, on false approvals or on exactly right outcomes. A difference that is not significant does not prove that there is none.",
		fmt.Sprintf("%d pairs in %d groups; McNemar's test and the bootstrap count a group as one draw. %d of %d cases have no pair.", c.Pairs, c.Groups, c.Unpaired, before.Cases),
		fmt.Sprintf("Unreadable answers: %d before, %d after: %s.", before.Unreadable, after.Unreadable, eval.DescribePolicy(c.Options.Unreadable)),
	}
	if !c.Compared {
		c.NotCompared = fmt.Sprintf("%d of %d cases have no outcome of both judges", c.Unpaired, before.Cases)
		c.Says = "not compared: " + c.NotCompared
		return
	}
	looser, worse := c.FalseApprove.PWorse <= alpha, c.Right.PWorse <= alpha
	c.Regression = looser || worse
	switch {
	case looser:
		c.Says = fmt.Sprintf("regression: %d new false approvals, %d gone (p = %.4g)", c.FalseApprove.B, c.FalseApprove.C, c.FalseApprove.PWorse)
	case worse:
		c.Says = fmt.Sprintf("regression: %d outcomes are no longer right, %d have become right (p = %.4g)", c.Right.B, c.Right.C, c.Right.PWorse)
	default:
		c.Says = fmt.Sprintf("no significant regression: %d new false approvals, %d gone (p = %.4g); %d outcomes no longer right, %d become right (p = %.4g)",
			c.FalseApprove.B, c.FalseApprove.C, c.FalseApprove.PWorse, c.Right.B, c.Right.C, c.Right.PWorse)
	}
}

// Conclude summarises a comparison.
func (c Comparison) Conclude() eval.Conclusion {
	switch {
	case !c.Compared:
		return eval.Conclusion{Status: eval.StatusNotEvaluated, Says: "FAILED: " + c.Says}
	case c.Regression:
		return eval.Conclusion{Status: eval.StatusRegression, Says: "FAILED: " + c.Says}
	}
	return eval.Conclusion{Status: eval.StatusPassed, Says: "PASSED: " + c.Says}
}

// Figures returns the rows of a table of the figures.
func (c Comparison) Figures() [][]string {
	return [][]string{
		{"cases", fmt.Sprintf("%d pairs in %d groups, %d without a pair", c.Pairs, c.Groups, c.Unpaired), ""},
		{"digest", c.Digest, ""},
		{"right outcomes", fmt.Sprintf("%d got worse, %d got better", c.Right.B, c.Right.C), fmt.Sprintf("McNemar p = %.4f, worse p = %.4f", c.Right.P, c.Right.PWorse)},
		{"false approvals", fmt.Sprintf("%d new, %d gone", c.FalseApprove.B, c.FalseApprove.C), fmt.Sprintf("McNemar p = %.4f, worse p = %.4f", c.FalseApprove.P, c.FalseApprove.PWorse)},
	}
}

// DifferenceTable shows the differences.
func (c Comparison) DifferenceTable() eval.Grid {
	t := eval.Grid{Title: "Against the baseline", Head: []string{"figure", "before", "after", "change", "interval"}}
	for _, d := range c.Differences {
		t.Rows = append(t.Rows, []string{d.Name, eval.FormatDecimal(d.Before), eval.FormatDecimal(d.After), eval.FormatDecimal(d.Change.Value), cmp.Or(d.Change.Bounds(), "-")})
	}
	return t
}

// ChangeTable shows the first of the changed cases.
func (c Comparison) ChangeTable() eval.Grid {
	t := eval.Grid{Title: "Other outcomes than before", Head: []string{"case", "right", "before", "after"}}
	shown := min(len(c.Changed), maxShown)
	for _, d := range c.Changed[:shown] {
		t.Rows = append(t.Rows, []string{d.Case, string(d.Expected), string(d.Before), string(d.After)})
	}
	if more := len(c.Changed) - shown + c.ChangedLeftOut; more > 0 {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("(%d more)", more), "", "", ""})
	}
	return t
}

// LabelChanges describes, by case id, whether the outcome of a changed case became right, is no longer right, or is
// wrong in another way.
func (c Comparison) LabelChanges() map[string]string {
	out := map[string]string{}
	for _, d := range c.Changed {
		switch {
		case d.After == d.Expected:
			out[d.Case] = "became right"
		case d.Before == d.Expected:
			out[d.Case] = "no longer right"
		default:
			out[d.Case] = "wrong in another way"
		}
	}
	return out
}

// Baseline returns the comparison in the form that a run stores.
func (c Comparison) Baseline() (*eval.BaselineResult, error) {
	detail, err := json.Marshal(c)
	return &eval.BaselineResult{Compared: c.Compared, Regression: c.Regression, Says: c.Says, Detail: detail}, err
}

// ReadBaseline returns the comparison of a run with its baseline.
func ReadBaseline(b *eval.BaselineResult) (c Comparison, err error) {
	return c, json.Unmarshal(b.Detail, &c)
}

// Runs compares two runs. If the cases themselves have changed, Says also states how many.
func Runs(before, after eval.Measurement) Comparison {
	c := Compare(after.Cases, before.Results, after.Results, after.Report.Options)
	was := map[string]string{}
	for _, of := range before.Cases {
		was[of.ID] = of.Digest
	}
	changed, first := 0, ""
	for _, of := range after.Cases {
		if old := was[of.ID]; old != "" && of.Digest != "" && old != of.Digest {
			if changed++; changed == 1 {
				first = of.ID
			}
		}
	}
	if changed > 0 {
		c.Says += fmt.Sprintf("; %d of the cases have changed (the first is %s), so a difference may come from the cases and not from the judge", changed, first)
	}
	return c
}

// CheckSame rejects a comparison of runs if a case has a different right outcome: a difference would come from the
// labels.
func CheckSame(before, after eval.Measurement) error {
	expected := map[string]judge.Outcome{}
	for _, c := range before.Cases {
		expected[c.ID] = c.Expect.Outcome
	}
	for _, c := range after.Cases {
		if was, ok := expected[c.ID]; ok && was != c.Expect.Outcome {
			return term.UsageErrorf("run the earlier judge on the current cases", "the case %q has a different right outcome than before (%s, was %s)", c.ID, c.Expect.Outcome, was)
		}
	}
	return nil
}
