package tune

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

// level returns answers of one certainty, each in a separate group.
func level(score float64, right, wrong int) (all []eval.RankedAnswer) {
	for i := range right + wrong {
		all = append(all, eval.RankedAnswer{Score: score, Wrong: i >= right, Group: uint32(i)})
	}
	return all
}

// levelGroups puts size answers into each group.
func levelGroups(all []eval.RankedAnswer, size int) []eval.RankedAnswer {
	for i := range all {
		all[i].Group = uint32(i / size)
	}
	return all
}

func TestTuneCertifiesOnlyWithEnoughApprovals(t *testing.T) {
	sure := level(0.9, 100, 0)
	for _, c := range []struct {
		name      string
		cal, test []eval.RankedAnswer
		status    Certification
		threshold float64 // 0 for none
		more      int
		says      string
	}{
		{name: "cal alone certifies nothing", cal: level(0.9, 1000, 0), status: NotCertifiable, more: 59, says: "certificates come from test alone"},
		{name: "58 right ones are one too few", cal: sure, test: level(0.9, 58, 0), status: NotCertifiable, more: 1, says: "needs 1 more approvals"},
		{name: "59 are enough", cal: sure, test: level(0.9, 59, 0), status: Certified, threshold: 0.9, says: "0 of 59 approvals of the split test are wrong (59 groups), which shows at most 5.0 %"},
		{name: "one wrong of 92 needs one more", cal: sure, test: level(0.9, 91, 1), status: NotCertifiable, more: 1, says: "needs 1 more"},
		{name: "590 in 59 groups are 59", cal: sure, test: levelGroups(level(0.9, 590, 0), 10), status: Certified, threshold: 0.9, says: "0 of 590 approvals of the split test are wrong (59 groups)"},
		{name: "580 in 58 groups are 58", cal: sure, test: levelGroups(level(0.9, 580, 0), 10), status: NotCertifiable, more: 1, says: "needs 1 more"},
		{name: "no approvals at all", status: NotCertifiable, more: 59, says: "approved none"},
		{name: "half are wrong", cal: level(0.9, 100, 100), test: level(0.9, 100, 100), status: Infeasible, more: 2153, says: "100 of 200 approvals of the split test are wrong (200 groups): 42.9 % to 57.1 %, which is more than 0.05; they certify at most 56.0 %"},
		{name: "the unsure half is wrong", cal: append(level(0.9, 200, 0), level(0.6, 60, 60)...), test: append(level(0.9, 60, 0), level(0.6, 60, 60)...), status: Certified, threshold: 0.9, says: "certified"},
		{name: "a small cal is enough to choose", cal: append(level(0.9, 20, 0), level(0.6, 10, 10)...), test: append(level(0.95, 59, 0), level(0.6, 9, 9)...), status: Certified, threshold: 0.9, says: "certified"},
		{name: "too few held out", cal: sure, test: level(0.95, 40, 0), status: NotCertifiable, more: 19, says: "It needs 19 more"},
		{name: "bad held out", cal: sure, test: level(0.95, 40, 40), status: Infeasible, more: 956, says: "use another judge or another target"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := tuneThreshold(c.cal, max(len(c.cal), 1), c.test, 0.05, 0.95)
			if got.Status != c.status || got.More != c.more || got.Needed != 59 || !strings.Contains(got.Says, c.says) {
				t.Errorf("got %+v", got)
			}
			if (c.threshold == 0) != (got.Threshold == nil) || (got.Threshold != nil && *got.Threshold != c.threshold) {
				t.Errorf("threshold %v, want %v", got.Threshold, c.threshold)
			}
			for _, p := range got.Prospects {
				if exactUpperBound(got.Risk.K, got.Risk.N+p.NoneWrong, 0.95) > p.Risk && got.Groups == got.Risk.N {
					t.Errorf("%d more approvals do not show %v", p.NoneWrong, p.Risk)
				}
				if (p.AsSeen != nil) != (*got.Risk.Value < p.Risk) {
					t.Errorf("%+v at %v wrong", p, *got.Risk.Value)
				}
			}
			if few := got.Groups > 0 && got.Groups < 30; few != (len(got.Warnings) > 0) {
				t.Errorf("%d groups: %v", got.Groups, got.Warnings)
			}
		})
	}
}

// A judge may have approvals that are wrong slightly more often than the target, whatever its confidence. It may be
// certified in at most 5 % of the samples, even if the cases of a group share their fate. A judge with a tenth of the
// risk must be certified in most samples, or the rule would be useless.
func TestTuneKeepsItsWord(t *testing.T) {
	if raceDetector {
		t.Skip("arithmetic in one goroutine, and most of the time of this package")
	}
	const target, groups = 0.05, 100
	for _, size := range []int{1, 5, 10} {
		for _, shared := range []float64{0, 0.5, 1} { // share of the cases of a group
			if size == 1 && shared > 0 {
				continue
			}
			draw := func(random *rand.Rand, risk float64) (all []eval.RankedAnswer) {
				for g := range groups {
					fate := random.Float64() < risk
					for range 1 + random.IntN(2*size-1) { // size on average
						wrong := random.Float64() < risk
						if random.Float64() < shared {
							wrong = fate
						}
						all = append(all, eval.RankedAnswer{Score: random.Float64(), Wrong: wrong, Group: uint32(g)})
					}
				}
				eval.SortAnswers(all)
				return all
			}
			certified := func(risk float64, runs int) (share float64) {
				for run := range runs {
					random := rand.New(rand.NewPCG(7, uint64(run)))
					cal := draw(random, risk)
					if tuneThreshold(cal, len(cal), draw(random, risk), target, 0.95).Status == Certified {
						share += 1 / float64(runs)
					}
				}
				return share
			}
			const runs = 300
			bad, good := certified(target*1.001, runs), certified(target/10, 50)
			t.Logf("groups of %d, %.0f %% of the cases share their fate: certified %.1f %% at the target, %.0f %% at a tenth of it", size, 100*shared, 100*bad, 100*good)
			if most := 0.05 + 3*math.Sqrt(0.05*0.95/runs); bad > most { // three standard deviations
				t.Errorf("groups of %d, shared %v: certified %.3f of the bad judges; up to %.3f could be chance", size, shared, bad, most)
			}
			if good < 0.5 {
				t.Errorf("groups of %d, shared %v: certified only %.2f of the good judges", size, shared, good)
			}
		}
	}
}

func TestTuneRefusesTargets(t *testing.T) {
	for _, target := range []float64{0, 1, -1, 1e-9, math.NaN()} {
		if _, err := Tune(nil, nil, target, eval.Options{}); err == nil {
			t.Errorf("target %v passes", target)
		}
	}
}

// A threshold chosen on groups that also occur among the test cases has a warning.
func TestTuneReportsSharedGroups(t *testing.T) {
	var cases []eval.Case
	var results []eval.Result
	for i := range 200 {
		right := []judge.Outcome{judge.Approve, judge.Approve, judge.Reject}[i%3]
		of := eval.Case{ID: fmt.Sprint(i), Group: fmt.Sprint("g", i/2), Split: []eval.Split{eval.Cal, eval.Test}[i/2%2], Expect: eval.Expect{Outcome: right}}
		p := 0.6 + float64(i%4)/10
		cases = append(cases, of)
		results = append(results, eval.Result{Case: of.ID, Outcome: judge.Approve, Confidence: p, Approval: &p, Stated: &p, Model: "m", PromptDigest: "p", CriteriaDigest: "c"})
	}
	check := func(want bool) {
		t.Helper()
		tuning, err := Tune(cases, results, 0.05, eval.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if tuned := strings.Join(tuning.Warnings, " "); strings.Contains(tuned, "1 cases of test are left out") != want {
			t.Errorf("want %v: %s", want, tuned)
		}
	}
	check(false)
	cases[1].Split = eval.Test // its group is also in cal
	check(true)
}

// Exact binomial sample sizes for a one-sided bound at 95 % with 0, 1, 2 wrong: the
// usual "rule of three" table.
func TestApprovalsNeededPublished(t *testing.T) {
	for _, c := range []struct {
		target float64
		needed []int
	}{
		{0.05, []int{59, 93, 124}},
		{0.10, []int{29, 46, 61}},
		{0.02, []int{149, 236}},
		{0.01, []int{299, 473}},
	} {
		for wrong, want := range c.needed {
			if got := ApprovalsNeeded(wrong, c.target, 0.95); got != want {
				t.Errorf("ApprovalsNeeded(%d, %v): got %d, want %d", wrong, c.target, got, want)
			}
			if exactUpperBound(wrong, want, 0.95) > c.target || exactUpperBound(wrong, want-1, 0.95) <= c.target {
				t.Errorf("%d with %d wrong is not where the bound crosses %v", want, wrong, c.target)
			}
		}
	}
	if got := ApprovalsNeeded(0, 1e-300, 0.95); got != math.MaxInt {
		t.Errorf("a target of next to nothing needs %d", got)
	}
}

// exactUpperBound returns the exact one-sided upper bound of a rate of k in n.
func exactUpperBound(k, n int, confidence float64) float64 {
	return eval.NewRate(k, n, float64(n), confidence).Upper
}
