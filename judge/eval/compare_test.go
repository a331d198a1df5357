package eval

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

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
func many(copies int) (cases []Case, results []Result) {
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
	same := Compare(cases, before, after, Options{})
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
	c := Compare(cases, before, after, Options{})
	if !c.Regression || c.FalseApprove.B != 6 || c.FalseApprove.C != 0 || c.FalseApprove.N != 36 || len(c.Changed) != 6 {
		t.Errorf("six new false approvals: %+v", c)
	}
	near(t, "p", c.FalseApprove.PWorse, 1.0/64, 1e-12)
	d := c.Differences[0]
	near(t, "difference", *d.Change.Value, 6.0/36, 1e-12)
	if d.Name != "falseApprove" || d.Change.Interval.Low <= 0 || d.Change.Interval.High >= 0.4 {
		t.Errorf("%+v", d)
	}
	if back := Compare(cases, after, before, Options{}); back.Regression || *back.Differences[0].Change.Value >= 0 {
		t.Errorf("the other way round it is better: %+v", back)
	}
	if fewer := Compare(cases, before, after[:40], Options{}); fewer.Compared || fewer.Regression || fewer.Unpaired != 20 {
		t.Errorf("a third has no pair: %+v", fewer)
	}
	if none := Compare(nil, nil, nil, Options{}); none.Compared || none.Regression {
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
	if c := Compare(cases, before, after, Options{}); c.Pairs != 20 || len(c.Changed) != 0 {
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
	var cases []Case
	var before, after []Result
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
	c := Compare(cases, before, after, Options{})
	if c.Regression || c.FalseApprove.B != 10 || c.FalseApprove.PWorse != 0.5 || c.FalseApprove.P != 1 {
		t.Errorf("%+v, %s", c.FalseApprove, c.Says)
	}
	for i := range cases {
		cases[i].Group = ""
	}
	if c := Compare(cases, before, after, Options{}); !c.Regression || math.Abs(c.FalseApprove.PWorse-1.0/1024) > 1e-12 {
		t.Errorf("%+v, %s", c.FalseApprove, c.Says)
	}
}
