package eval

import (
	"testing"

	"pgregory.net/rapid"
)

// Worked by hand: risks 0/1, 1/2, 1/3, 2/4 in the order of certainty.
func TestRiskCurveByHand(t *testing.T) {
	all := []RankedAnswer{{0.9, false, 0}, {0.8, true, 1}, {0.7, false, 2}, {0.6, true, 3}}
	c := riskCurve(all, 0.95)
	if len(c.Points) != 4 || c.Points[1].Risk.K != 1 || c.Points[1].Risk.N != 2 || c.Points[1].Threshold != 0.8 || c.Points[1].Coverage != 0.5 {
		t.Errorf("points: %+v", c.Points)
	}
	tied := riskCurve([]RankedAnswer{{0.5, true, 0}, {0.5, false, 1}}, 0.95)
	if len(tied.Points) != 1 {
		t.Errorf("a tie cannot be split: %+v", tied.Points)
	}
}

func TestRiskCurveProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := listApprovals(genForecasts(t))
		if len(of) == 0 {
			return
		}
		c := riskCurve(of, 0.95)
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
