package eval

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/judge"
)

// Comparison describes how a second judge (after) differs from a first one (before) on the cases that both answered.
type Comparison struct {
	Options Options `json:"options"`
	// Compared is false if too many cases have no outcome from one or both judges.
	Compared    bool     `json:"compared"`
	NotCompared string   `json:"notCompared,omitempty"`
	Notes       []string `json:"notes"`
	// Pairs is the number of cases with an outcome from both judges, Groups the number of their groups. Unpaired is
	// the number of cases with an outcome from one judge or none.
	Pairs    int    `json:"pairs"`
	Groups   int    `json:"groups"`
	Unpaired int    `json:"unpaired"`
	Digest   string `json:"digest"` // of the cases, as in Counts
	// Right tests how often the outcome is exactly right. FalseApprove covers only the cases that must not be approved,
	// and tests how often they were approved. In both, B counts pairs that got worse, C pairs that got better.
	Right        McNemarTest `json:"right"`
	FalseApprove McNemarTest `json:"falseApprove"`
	// Differences are after minus before, with paired bootstrap intervals.
	Differences []Difference `json:"differences"`
	// Changed lists cases with a different outcome, new false approvals first.
	Changed        []Change `json:"changed"`
	ChangedLeftOut int      `json:"changedLeftOut,omitempty"`
	// Regression reports that the second judge is significantly worse in false approvals or in right outcomes, at the
	// significance level 1 - Confidence. Says is the result as a sentence.
	Regression bool   `json:"regression"`
	Says       string `json:"says"`
}

// McNemarTest is McNemar's exact test over pairs, except that each group counts as one observation: under the null
// hypothesis, before and after are swapped for all pairs of a group or for none. With one pair in each group, it is
// McNemar's original test.
type McNemarTest struct {
	N int `json:"n"` // pairs
	B int `json:"b"` // right before, wrong after
	C int `json:"c"` // wrong before, right after
	// P is the two-sided p-value; PWorse is the one-sided p-value for the null hypothesis "after is not worse".
	P      float64 `json:"p"`
	PWorse float64 `json:"pWorse"`
}

// Difference is the change of one metric.
type Difference struct {
	Name   string   `json:"name"` // falseApprove, escalation, accuracy, gateAccuracy or kappa
	Before *float64 `json:"before,omitempty"`
	After  *float64 `json:"after,omitempty"`
	Change Estimate `json:"change"`
}

// Change is one case with a different outcome.
type Change struct {
	Case     string        `json:"case"`
	Repeat   int           `json:"repeat"`
	Tags     []string      `json:"tags,omitempty"`
	Expected judge.Outcome `json:"expected"`
	Before   judge.Outcome `json:"before"`
	After    judge.Outcome `json:"after"`
}

// McNemar returns the exact p-values for b pairs that got worse and c that got better (McNemar 1947). Under the null
// hypothesis, b is the number of heads in b+c tosses of a fair coin.
func McNemar(b, c int) (twoSided, worse float64) {
	tail := func(k int) float64 { // the probability of k or more heads
		if k <= 0 {
			return 1
		}
		return betaCDF(0.5, float64(k), float64(b+c-k)+1)
	}
	return min(1, 2*tail(max(b, c))), tail(b)
}

// Compare compares the results of two judges on the same cases, pair by pair.
func Compare(cases []Case, before, after []Result, o Options) Comparison {
	o = o.WithDefaults()
	first, second := Join(cases, before, o), Join(cases, after, o)
	pairs := pairRows(first.Rows, second.Rows)
	c := Comparison{Options: o, Pairs: len(pairs), Digest: first.Counts.Digest}
	rows := make([]Row, 0, len(pairs))
	answered := map[string]bool{}
	for _, p := range pairs {
		rows = append(rows, p.before)
		answered[p.before.Case.ID] = true
	}
	c.Groups = len(groupStarts(rows)) - 1
	c.Unpaired = len(first.Cases) - len(answered)
	c.Right = testMcNemar(pairs, func(Row) bool { return true }, Row.IsExact)
	c.FalseApprove = testMcNemar(pairs, Row.MustNot, func(w Row) bool { return !w.FalseApprove() })
	c.Differences = computeDifferences(pairs, o)
	c.Changed, c.ChangedLeftOut = listChanges(pairs, maxChanges)
	c.conclude(first.Counts, second.Counts)
	return c
}

type pairing struct{ before, after Row }

// pairRows pairs the rows of the same case and repeat. Without Options.Pool, each case has one row per judge: its first
// repeat that did not fail.
func pairRows(first, second []Row) []pairing {
	type key struct {
		id string
		at int
	}
	keys := func(rows []Row) []key {
		all := make([]key, len(rows))
		for i, w := range rows {
			all[i].id = w.Case.ID
			if i > 0 && all[i-1].id == w.Case.ID {
				all[i].at = all[i-1].at + 1
			}
		}
		return all
	}
	at := make(map[key]int, len(second))
	for i, k := range keys(second) {
		at[k] = i
	}
	var pairs []pairing
	for i, k := range keys(first) {
		if j, ok := at[k]; ok {
			pairs = append(pairs, pairing{first[i], second[j]})
		}
	}
	return pairs
}

func testMcNemar(pairs []pairing, counts, right func(Row) bool) McNemarTest {
	var t McNemarTest
	var worse []int // for each group: pairs that got worse, minus pairs that got better
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

// flipGroups returns the exact p-values of the sum of parts. Under the null hypothesis, each part has either sign with
// equal probability. larger is the one-sided p-value: the probability of a sum at least as large.
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
	chance := make([]float64, 2*reach+1) // the probability of each sum, starting at -reach
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

func computeDifferences(pairs []pairing, o Options) []Difference {
	before := make([]Row, len(pairs))
	for i, p := range pairs {
		before[i] = p.before
	}
	starts := groupStarts(before)
	both := func(part []pairing) (t [2]table) {
		for _, p := range part {
			t[0].add(p.before)
			t[1].add(p.after)
		}
		return t
	}
	groups := len(starts) - 1
	c := classifyGroups(groups, func(g int) [2]table { return both(pairs[starts[g]:starts[g+1]]) })
	compared := figures[:len(figures)-1]
	samples := make([]sample, len(compared))
	counts := make([]int, len(c.sums))
	tables := [2][]table{}
	for _, sum := range c.sums {
		tables[0], tables[1] = append(tables[0], sum[0]), append(tables[1], sum[1])
	}
	resampleGroups(groups, o.Resamples, o.Seed, func(drawn []uint32) {
		c.count(drawn, counts)
		t := [2]table{sumWeighted(tables[0], counts), sumWeighted(tables[1], counts)}
		for i, f := range compared {
			samples[i].add(subtractFigures(f.of(&t[1]), f.of(&t[0])))
		}
	})
	whole := both(pairs)
	var all []Difference
	for i, f := range compared {
		d := Difference{Name: f.name, Before: f.of(&whole[0]), After: f.of(&whole[1])}
		d.Change = samples[i].estimate(subtractFigures(d.After, d.Before), o.Confidence)
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

// maxChanges limits how many changed cases a comparison lists; a table shows fewer.
const maxChanges = 1000

// listChanges lists changed outcomes, new false approvals first.
func listChanges(pairs []pairing, most int) (all []Change, leftOut int) {
	var other []pairing
	for _, p := range pairs {
		if p.before.Got != p.after.Got {
			other = append(other, p)
		}
	}
	slices.SortStableFunc(other, func(a, b pairing) int {
		return cmp.Or(cmp.Compare(gradeOutcome(b.after)-gradeOutcome(b.before), gradeOutcome(a.after)-gradeOutcome(a.before)), cmp.Compare(a.before.Case.ID, b.before.Case.ID))
	})
	leftOut = max(len(other)-most, 0)
	all = []Change{}
	for _, p := range other[:len(other)-leftOut] {
		all = append(all, Change{
			Case: p.before.Case.ID, Repeat: p.after.Result.Repeat, Tags: p.before.Case.Tags,
			Expected: p.before.Expect, Before: p.before.Got, After: p.after.Got,
		})
	}
	return all, leftOut
}

func (c *Comparison) conclude(before, after Counts) {
	alpha := 1 - c.Options.Confidence
	alpha = math.Round(alpha*1e12) / 1e12
	lost := max(c.Unpaired-before.Excluded-after.Excluded, 0)
	c.Compared = c.Pairs > 0 && float64(lost) <= *c.Options.MaxFailures*float64(before.Cases)
	c.Notes = []string{
		"Regression: McNemar's exact test, one-sided, on false approvals or on exactly right outcomes. A difference that is not significant does not prove that there is none.",
		fmt.Sprintf("%d pairs in %d groups; McNemar's test and the bootstrap count a group as one draw. %d of %d cases have no pair.", c.Pairs, c.Groups, c.Unpaired, before.Cases),
		fmt.Sprintf("Unreadable answers: %d before, %d after: %s.", before.Unreadable, after.Unreadable, unreadableWords(c.Options.Unreadable)),
	}
	if !c.Compared {
		c.NotCompared = fmt.Sprintf("%d of %d cases lack an outcome of at least one judge", c.Unpaired, before.Cases)
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
