package eval

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// By hand: risks 0/1, 1/2, 1/3, 2/4 in the order of certainty; best 0, 0, 1/3, 2/4.
func TestRiskCurveByHand(t *testing.T) {
	all := []rankedAnswer{{0.9, false}, {0.8, true}, {0.7, false}, {0.6, true}}
	c := riskCurve(all, 0.95)
	near(t, "AURC", c.AURC, (0+0.5+1.0/3+0.5)/4, 1e-12)
	near(t, "best", c.Best, (1.0/3+0.5)/4, 1e-12)
	if len(c.Points) != 4 || c.Points[1].Risk.K != 1 || c.Points[1].Risk.N != 2 || c.Points[1].Threshold != 0.8 || c.Points[1].Coverage != 0.5 {
		t.Errorf("points: %+v", c.Points)
	}
	tied := riskCurve([]rankedAnswer{{0.5, true}, {0.5, false}}, 0.95)
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

func level(score float64, right, wrong int) (all []rankedAnswer) {
	for range right {
		all = append(all, rankedAnswer{score, false})
	}
	for range wrong {
		all = append(all, rankedAnswer{score, true})
	}
	return all
}

func TestTuneSays(t *testing.T) {
	for _, c := range []struct {
		name      string
		cal, test []rankedAnswer
		status    Certification
		threshold float64 // 0: none
		more      int
		says      string
	}{
		{name: "58 right ones are one too few", cal: level(0.9, 58, 0), status: NotCertifiable, more: 1, says: "needs 1 more approvals"},
		{name: "59 are enough", cal: level(0.9, 59, 0), status: Certified, threshold: 0.9, says: "certified"},
		{name: "one wrong of 92 needs one more", cal: level(0.9, 91, 1), status: NotCertifiable, more: 1, says: "needs 1 more"},
		{name: "no approvals at all", status: NotCertifiable, more: 59, says: "approved none"},
		{name: "half are wrong", cal: level(0.9, 100, 100), status: Infeasible, says: "infeasible"},
		{name: "the unsure half is wrong", cal: append(level(0.9, 200, 0), level(0.6, 60, 60)...), status: Certified, threshold: 0.9, says: "certified"},
		{name: "held out", cal: level(0.9, 100, 0), test: level(0.95, 59, 0), status: Certified, threshold: 0.9, says: "of the test cases"},
		{name: "too few held out", cal: level(0.9, 100, 0), test: level(0.95, 40, 0), status: NotCertifiable, more: 19, says: "it needs 19 more"},
		{name: "bad held out", cal: level(0.9, 100, 0), test: level(0.95, 40, 40), status: Infeasible, says: "two parts differ"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := tuneThreshold(c.cal, max(len(c.cal), 1), c.test, 0.05, 0.95)
			if got.Status != c.status || got.More != c.more || got.Needed != 59 || !strings.Contains(got.Says, c.says) {
				t.Errorf("got %+v", got)
			}
			if (c.threshold == 0) != (got.Threshold == nil) || (got.Threshold != nil && *got.Threshold != c.threshold) {
				t.Errorf("threshold %v, want %v", got.Threshold, c.threshold)
			}
		})
	}
}

// A judge whose approvals are wrong a little more often than the target, however sure
// it is, must be certified in no more than 5 % of the samples.
func TestTuneKeepsItsWord(t *testing.T) {
	const target, runs = 0.05, 500
	for _, held := range []bool{false, true} {
		certified := 0
		for run := range runs {
			random := rand.New(rand.NewPCG(7, uint64(run)))
			draw := func(n int) (all []rankedAnswer) {
				for range n {
					all = append(all, rankedAnswer{random.Float64(), random.Float64() < target*1.001})
				}
				sortAnswers(all)
				return all
			}
			var test []rankedAnswer
			cal := draw(300)
			if held {
				test = draw(300)
			}
			if tuneThreshold(cal, len(cal), test, target, 0.95).Status == Certified {
				certified++
			}
		}
		// Three standard deviations of a binomial with 0.05.
		if most := runs*0.05 + 3*math.Sqrt(runs*0.05*0.95); float64(certified) > most {
			t.Errorf("held out %v: certified %d of %d, at most %.0f could be chance", held, certified, runs, most)
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
