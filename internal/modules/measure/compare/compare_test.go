package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

// Fay 2010, "Two-sided exact tests and matching confidence intervals for discrete
// data", R Journal 2(1), and the package exact2x2: b = 2, c = 9 gives p = 0.06543. The
// others are sums of binomial coefficients worked by hand.
func TestMcNemarPublished(t *testing.T) {
	for _, c := range []struct {
		b, c     int
		two, one float64
	}{
		{2, 9, 0.06543, 1 - 12.0/2048},
		{9, 2, 0.06543, 67.0 / 2048},
		{0, 0, 1, 1},
		{5, 5, 1, 638.0 / 1024},
		{6, 0, 2.0 / 64, 1.0 / 64},
		{1, 9, 22.0 / 1024, 1 - 1.0/1024},
	} {
		two, one := McNemar(c.b, c.c)
		near(t, "two-sided", two, c.two, 5e-6)
		near(t, "one-sided", one, c.one, 5e-6)
	}
}

func TestMcNemarAgainstWholeNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, c := rapid.IntRange(0, 200).Draw(t, "b"), rapid.IntRange(0, 200).Draw(t, "c")
		n, k := b+c, min(b, c)
		sum := new(big.Int)
		for i := 0; i <= k; i++ {
			sum.Add(sum, new(big.Int).Binomial(int64(n), int64(i)))
		}
		want, _ := new(big.Rat).SetFrac(sum.Lsh(sum, 1), new(big.Int).Lsh(big.NewInt(1), uint(n))).Float64()
		got, _ := McNemar(b, c)
		if d := got - min(want, 1); d > 1e-9 || d < -1e-9 {
			t.Fatalf("b = %d, c = %d: %v, want %v", b, c, got, want)
		}
		if back, _ := McNemar(c, b); back != got {
			t.Fatalf("not symmetric: %v and %v", back, got)
		}
	})
}

// many returns many copies of the hand set.
func many(copies int) (cases []eval.Case, results []eval.Result) {
	for i := range copies {
		c, r := hand()
		for j := range c {
			c[j].ID += string(rune('a' + i))
			r[j].Case = c[j].ID
		}
		cases, results = append(cases, c...), append(results, r...)
	}
	return cases, results
}

func TestCompareFindsRegressions(t *testing.T) {
	cases, before := many(3)
	after := slices.Clone(before)
	same := Compare(cases, before, after, eval.Options{})
	if same.Regression || !same.Compared || same.Pairs != 60 || len(same.Changed) != 0 || same.Right.P != 1 {
		t.Errorf("the same judge: %+v", same)
	}
	for _, d := range same.Differences {
		if *d.Change.Value != 0 || d.Change.Interval.Low != 0 || d.Change.Interval.High != 0 {
			t.Errorf("the same judge differs: %+v", d)
		}
	}
	opened := 0
	for i := range after {
		if cases[i].Expect.Outcome == judge.Reject && after[i].Outcome == judge.Reject && opened < 6 {
			after[i].Outcome = judge.Approve
			opened++
		}
	}
	c := Compare(cases, before, after, eval.Options{})
	if !c.Regression || c.FalseApprove.B != 6 || c.FalseApprove.C != 0 || c.FalseApprove.N != 36 || len(c.Changed) != 6 {
		t.Errorf("six new false approvals: %+v", c)
	}
	near(t, "p", c.FalseApprove.PWorse, 1.0/64, 1e-12)
	d := c.Differences[0]
	near(t, "difference", *d.Change.Value, 6.0/36, 1e-12)
	if d.Name != "falseApprove" || d.Change.Interval.Low <= 0 || d.Change.Interval.High >= 0.4 {
		t.Errorf("%+v", d)
	}
	if back := Compare(cases, after, before, eval.Options{}); back.Regression || *back.Differences[0].Change.Value >= 0 {
		t.Errorf("the other way round it is better: %+v", back)
	}
	if fewer := Compare(cases, before, after[:40], eval.Options{}); fewer.Compared || fewer.Regression || fewer.Unpaired != 20 {
		t.Errorf("a third has no pair: %+v", fewer)
	}
	if none := Compare(nil, nil, nil, eval.Options{}); none.Compared || none.Regression {
		t.Errorf("nothing: %+v", none)
	}
	if _, err := json.Marshal(c); err != nil {
		t.Error(err)
	}
}

func TestComparePairsCases(t *testing.T) {
	cases, before := hand()
	after := slices.Clone(before)
	slices.Reverse(after)
	if c := Compare(cases, before, after, eval.Options{}); c.Pairs != 20 || len(c.Changed) != 0 {
		t.Errorf("order matters: %+v", c)
	}
}

// Checks the result against all possible signs of the parts.
func TestFlipGroupsCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.IntRange(-3, 3), 0, 10).Draw(t, "parts")
		sum := 0
		for _, d := range parts {
			sum += d
		}
		same, larger, all := 0, 0, 1<<len(parts)
		for signs := range all {
			s := 0
			for i, d := range parts {
				if signs>>i&1 == 1 {
					d = -d
				}
				s += d
			}
			if s >= sum {
				larger++
			}
			if max(s, -s) >= max(sum, -sum) {
				same++
			}
		}
		two, one := flipGroups(parts)
		if math.Abs(two-float64(same)/float64(all)) > 1e-9 || math.Abs(one-float64(larger)/float64(all)) > 1e-9 {
			t.Fatalf("%v: %v and %v, counted %d and %d of %d", parts, two, one, same, larger, all)
		}
	})
}

// A judge that got worse in one group of ten cases counts as worse once.
func TestCompareCountsGroupsOnce(t *testing.T) {
	var cases []eval.Case
	var before, after []eval.Result
	for i := range 40 {
		c := golden(fmt.Sprint("c", i), judge.Reject)
		c.Group = fmt.Sprint("g", i/10)
		cases, before = append(cases, c), append(before, answer(c.ID, judge.Reject, 0.9))
		got := judge.Reject
		if i < 10 {
			got = judge.Approve
		}
		after = append(after, answer(c.ID, got, 0.9))
	}
	c := Compare(cases, before, after, eval.Options{})
	if c.Regression || c.FalseApprove.B != 10 || c.FalseApprove.PWorse != 0.5 || c.FalseApprove.P != 1 {
		t.Errorf("%+v, %s", c.FalseApprove, c.Says)
	}
	for i := range cases {
		cases[i].Group = ""
	}
	if c := Compare(cases, before, after, eval.Options{}); !c.Regression || math.Abs(c.FalseApprove.PWorse-1.0/1024) > 1e-12 {
		t.Errorf("%+v, %s", c.FalseApprove, c.Says)
	}
}

func TestConclude(t *testing.T) {
	for says, c := range map[string]Comparison{
		"FAILED: regression: 8 new": {Compared: true, Regression: true, Says: "regression: 8 new"}, "PASSED: no significant": {Compared: true, Says: "no significant regression"},
		"FAILED: not compared": {Says: "not compared"},
	} {
		if got := c.Conclude(); !strings.HasPrefix(got.Says, says) {
			t.Errorf("got %q, want %q", got.Says, says)
		}
	}
}

// A run keeps the whole comparison with its baseline.
func TestBaselineIsReadBack(t *testing.T) {
	cases, before := hand()
	after := slices.Clone(before)
	after[0].Outcome = judge.Reject
	c := Compare(cases, before, after, eval.Options{})
	b, err := c.Baseline()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadBaseline(b)
	if err != nil || b.Says != c.Says || b.Compared != c.Compared || len(got.Changed) != 1 || *got.Differences[2].Before != *c.Differences[2].Before {
		t.Errorf("%v: %+v", err, got)
	}
}

// golden returns a case of the split test.
func golden(id string, expect judge.Outcome) eval.Case {
	return eval.Case{ID: id, Workflow: json.RawMessage(`{"ref":"flows.yaml#review"}`), State: "reviewing", Action: "approve", Expect: eval.Expect{Outcome: expect}, Label: eval.Label{Source: "human"}, Split: eval.Test}
}

// answer returns a result of a model.
func answer(id string, got judge.Outcome, confidence float64) eval.Result {
	p := confidence
	if got != judge.Approve {
		p = 1 - confidence
	}
	return eval.Result{Case: id, Outcome: got, Confidence: confidence, Approval: &p, Stated: &confidence, DecidedBy: judge.LayerModel, Model: "m", PromptDigest: "p", CriteriaDigest: "c", Calls: 1}
}

// hand returns a set whose figures are worked by hand. Expected approve got 6 approve, 1 reject, 1 escalate; expected
// reject got 1, 4, 1; expected escalate got 1, 2, 3.
func hand() (cases []eval.Case, results []eval.Result) {
	for _, of := range []struct {
		expect judge.Outcome
		counts [3]int
	}{{judge.Approve, [3]int{6, 1, 1}}, {judge.Reject, [3]int{1, 4, 1}}, {judge.Escalate, [3]int{1, 2, 3}}} {
		for i, n := range of.counts {
			for j := range n {
				id := fmt.Sprintf("%s-%s-%d", of.expect, []judge.Outcome{judge.Approve, judge.Reject, judge.Escalate}[i], j)
				cases = append(cases, golden(id, of.expect))
				results = append(results, answer(id, []judge.Outcome{judge.Approve, judge.Reject, judge.Escalate}[i], 0.9))
			}
		}
	}
	return cases, results
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > within {
		t.Errorf("%s: got %.8g, want %.8g (within %g)", what, got, want, within)
	}
}
