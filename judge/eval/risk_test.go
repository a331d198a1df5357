package eval

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Worked by hand: risks 0/1, 1/2, 1/3, 2/4 in the order of certainty; best 0, 0, 1/3, 2/4.
func TestRiskCurveByHand(t *testing.T) {
	all := []rankedAnswer{{0.9, false, 0}, {0.8, true, 1}, {0.7, false, 2}, {0.6, true, 3}}
	c := riskCurve(all, 0.95)
	near(t, "AURC", c.AURC, (0+0.5+1.0/3+0.5)/4, 1e-12)
	near(t, "best", c.Best, (1.0/3+0.5)/4, 1e-12)
	if len(c.Points) != 4 || c.Points[1].Risk.K != 1 || c.Points[1].Risk.N != 2 || c.Points[1].Threshold != 0.8 || c.Points[1].Coverage != 0.5 {
		t.Errorf("points: %+v", c.Points)
	}
	tied := riskCurve([]rankedAnswer{{0.5, true, 0}, {0.5, false, 1}}, 0.95)
	near(t, "two orders of a tie are averaged", tied.AURC, (0.5+0.5)/2, 1e-12)
	if len(tied.Points) != 1 {
		t.Errorf("a tie cannot be split: %+v", tied.Points)
	}
}

func TestRiskCurveProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := listAnswers(genForecasts(t))
		c := riskCurve(of, 0.95)
		if c.AURC < c.Best-1e-12 || c.AURC > 1+1e-12 {
			t.Fatalf("AURC %v, best %v", c.AURC, c.Best)
		}
		for i, p := range c.Points {
			if i > 0 && (p.Coverage <= c.Points[i-1].Coverage || p.Threshold >= c.Points[i-1].Threshold) {
				t.Fatalf("points out of order: %+v", c.Points)
			}
		}
		last := c.Points[len(c.Points)-1]
		if last.Coverage != 1 || last.Risk.N != len(of) || len(c.Points) > maxPoints {
			t.Fatalf("the curve ends at %+v", last)
		}
	})
}

// level returns answers of one certainty, each in a separate group.
func level(score float64, right, wrong int) (all []rankedAnswer) {
	for i := range right + wrong {
		all = append(all, rankedAnswer{score, i >= right, uint32(i)})
	}
	return all
}

// levelGroups puts size answers into each group.
func levelGroups(all []rankedAnswer, size int) []rankedAnswer {
	for i := range all {
		all[i].group = uint32(i / size)
	}
	return all
}

func TestTuneSays(t *testing.T) {
	sure := level(0.9, 100, 0)
	for _, c := range []struct {
		name      string
		cal, test []rankedAnswer
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
			draw := func(random *rand.Rand, risk float64) (all []rankedAnswer) {
				for g := range groups {
					fate := random.Float64() < risk
					for range 1 + random.IntN(2*size-1) { // size on average
						wrong := random.Float64() < risk
						if random.Float64() < shared {
							wrong = fate
						}
						all = append(all, rankedAnswer{random.Float64(), wrong, uint32(g)})
					}
				}
				sortAnswers(all)
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
		if _, err := Tune(nil, nil, target, Options{}); err == nil {
			t.Errorf("target %v passes", target)
		}
	}
}
