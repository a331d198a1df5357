package eval

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/judge"
)

// slowPlatt finds the same minimum by shrinking a grid around the best point. It uses Platt's targets and no
// gradients.
func slowPlatt(stated []float64, right []bool) (a, b float64) {
	good := 0
	for _, r := range right {
		if r {
			good++
		}
	}
	bad := len(right) - good
	loss := func(a, b float64) float64 {
		sum := 0.0
		for i, p := range stated {
			p = math.Max(0.001, math.Min(0.999, p))
			c := 1 / (1 + math.Exp(a*math.Log(p/(1-p))+b))
			target := 1 / float64(bad+2)
			if right[i] {
				target = float64(good+1) / float64(good+2)
			}
			sum -= target*math.Log(c) + (1-target)*math.Log(1-c)
		}
		return sum
	}
	for width := 4.0; width > 1e-6; width *= 0.7 {
		at, best := [2]float64{a, b}, loss(a, b)
		for i := -6; i <= 6; i++ {
			for j := -6; j <= 6; j++ {
				x, y := a+width*float64(i)/6, b+width*float64(j)/6
				if l := loss(x, y); l < best {
					at, best = [2]float64{x, y}, l
				}
			}
		}
		a, b = at[0], at[1]
	}
	return a, b
}

func overconfident(n int, seed uint64) (stated []float64, right []bool) {
	random := rand.New(rand.NewPCG(seed, 5))
	for range n {
		p := 0.5 + random.Float64()/2
		stated = append(stated, p)
		right = append(right, random.Float64() < 0.5+(p-0.5)*0.6)
	}
	return stated, right
}

func TestPlattAgainstGrid(t *testing.T) {
	for seed := range uint64(4) {
		stated, right := overconfident(60, seed)
		got := FitPlatt(stated, right)
		a, b := slowPlatt(stated, right)
		near(t, "a", got.A, a, 1e-4)
		near(t, "b", got.B, b, 1e-4)
	}
	// The fit of separable answers must not diverge: the targets are never 0 or 1.
	got := FitPlatt([]float64{0.2, 0.3, 0.8, 0.9}, truths(0, 0, 1, 1))
	a, b := slowPlatt([]float64{0.2, 0.3, 0.8, 0.9}, truths(0, 0, 1, 1))
	near(t, "separable a", got.A, a, 1e-4)
	near(t, "separable b", got.B, b, 1e-4)
	if same := FitPlatt([]float64{0.9, 0.9, 0.9}, truths(1, 1, 0)); same.A != 0 {
		t.Errorf("one confidence only has a slope of %v", same.A)
	} else {
		near(t, "share with a prior of one each", 1/(1+math.Exp(same.B)), 3.0/5, 1e-12)
	}
}

// The fit uses the same log-odds as the judge that applies it.
func TestLogOddsAreTheJudges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Float64Range(0, 1).Draw(t, "p")
		c := judge.Calibration{Platt: judge.Platt{A: -rapid.Float64Range(0, 5).Draw(t, "a"), B: rapid.Float64Range(-5, 5).Draw(t, "b")}}
		if got, want := c.Apply(p), 1/(1+math.Exp(c.Platt.A*judge.LogOdds(p)+c.Platt.B)); math.Abs(got-want) > 1e-12 {
			t.Fatalf("stated %v: the judge makes %v of it, the fit means %v", p, got, want)
		}
	})
}

// calSet returns overconfident approvals in cal and test.
func calSet(n int) (cases []Case, results []Result) {
	stated, right := overconfident(2*n, 11)
	for i := range stated {
		c := golden(fmt.Sprint("c", i), judge.Approve)
		if !right[i] {
			c.Expect.Outcome = judge.Reject
		}
		if i < n {
			c.Split = Cal
		}
		cases, results = append(cases, c), append(results, answer(c.ID, judge.Approve, stated[i]))
	}
	return cases, results
}

func TestCalibrateHelpsOnTest(t *testing.T) {
	cases, results := calSet(600)
	all := Calibrate(cases, results, "set", "2026-11-20", Options{})
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	f := all[0]
	if f.Calibration == nil || f.Calibration.N != 600 || f.Calibration.Model != "m" || f.Fitted != 600 || f.After.N != 600 {
		t.Fatalf("%+v", f)
	}
	if f.After.Brier >= f.Before.Brier || *f.After.ECE.Value >= *f.Before.ECE.Value {
		t.Errorf("before %+v, after %+v", f.Before, f.After)
	}
	if e := f.After.ECE; e.Interval == nil || *e.Value > e.Interval.High || e.Interval.High > 0.12 || f.After.Groups != 600 || f.Calibration.Shortcoming() != "" {
		t.Errorf("%+v, %s", e, f.Calibration.Shortcoming())
	}
	file, err := json.Marshal(map[string]any{"v": 1, "calibrations": []judge.Calibration{*f.Calibration}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := judge.ParseCalibrations(file); err != nil {
		t.Errorf("the judge does not read it: %v", err)
	}
}

// The fit must not depend on cases of the splits test and dev.
func TestCalibrateLooksAtCalOnly(t *testing.T) {
	cases, results := calSet(100)
	one := Calibrate(cases, results, "", "", Options{})
	for i := range cases {
		if cases[i].Split == Test {
			cases[i].Expect.Outcome = judge.Reject
			cases = append(cases, cases[i])
			cases[len(cases)-1].ID, cases[len(cases)-1].Split = "dev"+cases[i].ID, Dev
			results = append(results, answer("dev"+cases[i].ID, judge.Approve, 0.99))
		}
	}
	other := Calibrate(cases, results, "", "", Options{})
	if one[0].Calibration.Platt != other[0].Calibration.Platt {
		t.Errorf("%+v became %+v", one[0].Calibration.Platt, other[0].Calibration.Platt)
	}
	if one[0].Before.Brier == other[0].Before.Brier {
		t.Error("the test cases were not looked at")
	}
}

// The model approves too easily, and is certain and right in its refusals. That certainty must not affect the
// calibration of its approvals, of which one in five is wrong.
func TestCalibrateLooksAtApprovalsOnly(t *testing.T) {
	var cases []Case
	var results []Result
	for i := range 1200 {
		c := golden(fmt.Sprint("c", i), judge.Reject)
		if i%2 == 0 {
			c.Split = Cal
		}
		got := judge.Reject
		if i%3 == 0 {
			got = judge.Approve
			if i%5 != 0 {
				c.Expect.Outcome = judge.Approve
			}
		}
		cases, results = append(cases, c), append(results, answer(c.ID, got, []float64{0.9, 0.95, 0.99}[i/6%3]))
	}
	all := Calibrate(cases, results, "", "", Options{})
	if len(all) != 1 || all[0].Calibration == nil {
		t.Fatal(all)
	}
	f := all[0]
	if f.Fitted != 200 || f.Groups != 200 || f.Right != 160 || f.After.N != 200 || f.After.Right.K != 160 || f.Calibration.Shortcoming() != "" {
		t.Errorf("%+v: %s", f, f.Calibration.Shortcoming())
	}
	for _, stated := range []float64{0.9, 0.95, 0.99} {
		near(t, "calibrated", f.Calibration.Apply(stated), 0.8, 0.03)
	}
	r := Evaluate(cases, results, Options{Splits: []Split{Test}})
	if a := r.ApprovalConfidence; a.N != 200 || a.Right.K != 160 || *a.ECE.Value < 0.1 || a.ECE.Interval == nil || len(a.Bins) == 0 {
		t.Errorf("%+v", a)
	}
}

// Even if a model's stated confidence says nothing about its approvals, the share that is right does.
func TestCalibrateTheSurerTheWorse(t *testing.T) {
	cases, results := calSet(400)
	right := 0
	for i := range results {
		results[i].Stated = new(1.5 - *results[i].Stated)
		if cases[i].Split == Cal && cases[i].Expect.Outcome == judge.Approve {
			right++
		}
	}
	all := Calibrate(cases, results, "", "", Options{})
	if all[0].Calibration == nil || !strings.Contains(strings.Join(all[0].Warnings, " "), "no more often right the surer it is") {
		t.Fatalf("%+v", all)
	}
	for _, stated := range []float64{0.5, 0.99} {
		near(t, "the share", all[0].Calibration.Apply(stated), float64(right+1)/402, 1e-9)
	}
}

// Approvals without a wrong one make no model certain, and too few groups give no calibration.
func TestCalibrateAFlawlessModel(t *testing.T) {
	for _, size := range []int{1, 20} {
		var cases []Case
		var results []Result
		for i := range 600 {
			of := golden(fmt.Sprint("c", i), judge.Approve)
			of.Group, of.Split = fmt.Sprint("g", i/size), []Split{Cal, Test}[i/size%2]
			cases, results = append(cases, of), append(results, answer(of.ID, judge.Approve, []float64{0.9, 0.99}[i%2]))
		}
		all := Calibrate(cases, results, "", "", Options{})
		if (all[0].Calibration == nil) != (size == 20) {
			t.Fatal(all)
		}
		if size == 20 {
			if says := strings.Join(all[0].Warnings, " "); !strings.Contains(says, "in 15 groups; 30 are needed") {
				t.Error(says)
			}
			continue
		}
		if got := all[0].Calibration.Apply(0.99); got >= 1 || got < 0.99 || all[0].Calibration.Shortcoming() != "" {
			t.Errorf("%v, %s", got, all[0].Calibration.Shortcoming())
		}
	}
}

func TestCalibrateRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(i int, r *Result)
		n      int
		says   string
	}{
		{"too few", nil, 29, "in 29 groups; 30 are needed"},
		{"unbound", func(_ int, r *Result) { r.CriteriaDigest = "" }, 50, "nothing can be bound"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cases, results := calSet(c.n)
			for i := range results {
				if c.change != nil {
					stated := *results[i].Stated
					results[i].Stated = &stated
					c.change(i, &results[i])
				}
			}
			all := Calibrate(cases, results, "", "", Options{})
			if all[0].Calibration != nil || !strings.Contains(strings.Join(all[0].Warnings, "\n"), c.says) {
				t.Errorf("%+v", all[0])
			}
		})
	}
}

// If policy escalated an approval with low confidence, it still counts as the model's approval.
func TestLeans(t *testing.T) {
	for _, c := range []struct {
		outcome              judge.Outcome
		confidence, approval float64
		code                 string
		want                 bool
	}{
		{judge.Approve, 0.9, 0.9, "", true},
		{judge.Reject, 0.9, 0.1, "", false},
		{judge.Escalate, 0.7, 0.7, "low_confidence", true},
		{judge.Escalate, 0.3, 0.3, "low_confidence", true},
		{judge.Reject, 0.3, 0.7, "", false},
		{judge.Escalate, 0.5, 0.5, "low_confidence", true},
		{judge.Reject, 0.5, 0.5, "", false},
	} {
		r := Result{Outcome: c.outcome, Confidence: c.confidence, Approval: &c.approval, Code: c.code}
		if got := LeansToApprove(&r); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A fit on groups that also occur among the test cases has a warning.
func TestSharedGroupsAreReported(t *testing.T) {
	var cases []Case
	var results []Result
	for i := range 200 {
		right := []judge.Outcome{judge.Approve, judge.Approve, judge.Reject}[i%3]
		of := Case{ID: fmt.Sprint(i), Group: fmt.Sprint("g", i/2), Split: []Split{Cal, Test}[i/2%2], Expect: Expect{Outcome: right}}
		p := 0.6 + float64(i%4)/10
		cases = append(cases, of)
		results = append(results, Result{Case: of.ID, Outcome: judge.Approve, Confidence: p, Approval: &p, Stated: &p, Model: "m", PromptDigest: "p", CriteriaDigest: "c"})
	}
	check := func(want bool) {
		t.Helper()
		fits := Calibrate(cases, results, "d", "", Options{})
		if len(fits) != 1 {
			t.Fatal(fits)
		}
		if fitted := strings.Join(fits[0].Warnings, " "); strings.Contains(fitted, "1 cases of test are left out") != want {
			t.Errorf("want %v: %s", want, fitted)
		}
	}
	check(false)
	cases[1].Split = Test // its group is also in cal
	check(true)
}

// The interval of an ECE comes from resampled groups. Here they have unequal sizes and there is one bin, so the ECE
// is the difference of two means.
func TestECEResamplesGroups(t *testing.T) {
	var all []forecast
	for i := range 19 {
		all = append(all, forecast{p: 0.7 + float64(i%4)/20, good: i%3 > 0, group: uint32(i * i / 50)})
	}
	o := Options{}.WithDefaults()
	got := scoreConfidence(all, func(p float64) float64 { return p }, o)
	var by [][]forecast
	for i, f := range all {
		if i == 0 || f.group != all[i-1].group {
			by = append(by, nil)
		}
		by[len(by)-1] = append(by[len(by)-1], f)
	}
	want := Sample{}
	resampleGroups(len(by), o.Resamples, o.Seed, func(drawn []uint32) {
		gap, n := 0.0, 0.0
		for g, times := range drawn {
			for range times {
				for _, f := range by[g] {
					gap, n = gap+f.p-f.value(), n+1
				}
			}
		}
		want.Add(ratioOf(math.Abs(gap), n))
	})
	if got.Groups != len(by) || len(got.Bins) != 1 {
		t.Fatalf("%d groups of %d, %d bins", got.Groups, len(by), len(got.Bins))
	}
	interval := want.interval(o.Confidence)
	near(t, "low", got.ECE.Interval.Low, interval.Low, 1e-9)
	near(t, "high", got.ECE.Interval.High, interval.High, 1e-9)
}
