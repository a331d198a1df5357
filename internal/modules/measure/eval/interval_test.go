package eval

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > within {
		t.Errorf("%s: got %.8g, want %.8g (within %g)", what, got, want, within)
	}
}

// Newcombe 1998, "Two-sided confidence intervals for the single proportion: comparison
// of seven methods", Statistics in Medicine 17, table I (methods 5 and 3); the last row
// is the example of R's binom.test, 682 of 925.
func TestIntervalsPublished(t *testing.T) {
	for _, c := range []struct {
		k, n          int
		exact, wilson Interval
		within        float64
	}{
		{81, 263, Interval{0.2527, 0.3676}, Interval{0.2553, 0.3662}, 5e-5},
		{15, 148, Interval{0.0578, 0.1617}, Interval{0.0624, 0.1605}, 5e-5},
		{0, 20, Interval{0, 0.1684}, Interval{0, 0.1611}, 5e-5},
		{1, 29, Interval{0.0009, 0.1776}, Interval{0.0061, 0.1718}, 5e-5},
	} {
		exact, wilson := ClopperPearson(c.k, c.n, 0.95), Wilson(c.k, c.n, 0.95)
		near(t, "exact low", exact.Low, c.exact.Low, c.within)
		near(t, "exact high", exact.High, c.exact.High, c.within)
		near(t, "Wilson low", wilson.Low, c.wilson.Low, c.within)
		near(t, "Wilson high", wilson.High, c.wilson.High, c.within)
	}
	r := ClopperPearson(682, 925, 0.95)
	near(t, "binom.test low", r.Low, 0.7076683, 5e-8)
	near(t, "binom.test high", r.High, 0.7654066, 5e-8)
}

// binomialTail is P(X <= k) by summation, independent of the beta function.
func binomialTail(k, n int, p float64) float64 {
	sum := 0.0
	for i := 0; i <= k; i++ {
		ways := 0.0
		for j := 1; j <= i; j++ {
			ways += math.Log(float64(n-i+j)) - math.Log(float64(j))
		}
		sum += math.Exp(ways + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return sum
}

func TestBoundsSolveTheBinomial(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		confidence := rapid.SampledFrom([]float64{0.8, 0.9, 0.95, 0.99}).Draw(t, "confidence")
		if up := exactUpperBound(k, n, confidence); k < n {
			if tail := binomialTail(k, n, up); math.Abs(tail-(1-confidence)) > 1e-9 {
				t.Fatalf("at the upper bound %v of %d/%d the tail is %v", up, k, n, tail)
			}
		} else if up != 1 {
			t.Fatalf("all of %d: upper %v", n, up)
		}
		if k == 0 {
			if low := exactLowerBound(k, n, confidence); low != 0 {
				t.Fatalf("none of %d: lower %v", n, low)
			}
			return
		}
		low := exactLowerBound(k, n, confidence)
		if tail := 1 - binomialTail(k-1, n, low); math.Abs(tail-(1-confidence)) > 1e-9 {
			t.Fatalf("at the lower bound %v of %d/%d the tail is %v", low, k, n, tail)
		}
	})
}

// A one-sided bound misses the truth no more often than stated: summed over all outcomes, not simulated.
func TestUpperBoundCovers(t *testing.T) {
	if raceDetector {
		t.Skip("arithmetic in one goroutine, and most of the time of this package")
	}
	for _, n := range []int{1, 5, 20, 60, 150} {
		bounds := make([]float64, n+1)
		for k := range bounds {
			bounds[k] = exactUpperBound(k, n, 0.95)
		}
		for p := 0.005; p < 1; p += 0.005 {
			missed := 0.0
			for k := range bounds {
				if bounds[k] < p {
					missed = max(missed, binomialTail(k, n, p))
				}
			}
			if missed > 0.05+1e-9 {
				t.Errorf("n = %d, p = %.3f: missed with probability %v", n, p, missed)
			}
		}
	}
}

func TestIntervalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 100_000).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		r := NewRate(k, n, float64(n), 0.95)
		if !(0 <= r.Low && r.Low <= r.High && r.High <= 1 && r.Upper <= r.High) {
			t.Fatalf("bounds out of order: %+v", r)
		}
		if n == 0 {
			if r.Value != nil || r.Low != 0 || r.Upper != 1 {
				t.Fatalf("nothing seen says something: %+v", r)
			}
			return
		}
		if *r.Value < r.Low || *r.Value > r.High {
			t.Fatalf("the value is outside: %+v", r)
		}
		mirror := ClopperPearson(n-k, n, 0.95)
		if math.Abs(mirror.Low-(1-r.High)) > 1e-9 || math.Abs(mirror.High-(1-r.Low)) > 1e-9 {
			t.Fatalf("%d/%d is no mirror of its opposite", k, n)
		}
		if more := exactUpperBound(k, n+1, 0.95); more > r.Upper {
			t.Fatalf("one more right one raised the bound of %d/%d from %v to %v", k, n, r.Upper, more)
		}
		if k < n {
			if worse := exactUpperBound(k+1, n, 0.95); worse < r.Upper {
				t.Fatalf("one more wrong one lowered the bound of %d/%d", k, n)
			}
		}
		if w := Wilson(k, n, 0.95); w.Low > *r.Value+1e-12 || w.High < *r.Value-1e-12 || w.Low < 0 || w.High > 1 {
			t.Fatalf("Wilson of %d/%d: %+v", k, n, w)
		}
	})
}

// exactUpperBound returns the exact one-sided upper bound of a rate, given k hits in n draws: the rate is below it
// with the given confidence.
func exactUpperBound(k, n int, confidence float64) float64 {
	return upperBound(float64(k), float64(n), 1-confidence)
}

// exactLowerBound is the lower counterpart of exactUpperBound.
func exactLowerBound(k, n int, confidence float64) float64 {
	return LowerBound(float64(k), float64(n), 1-confidence)
}

// Wilson returns the score interval (Wilson 1927). It is shorter than ClopperPearson, but correct only on average.
func Wilson(k, n int, confidence float64) Interval {
	if n <= 0 {
		return Interval{0, 1}
	}
	z := math.Sqrt2 * math.Erfinv(confidence)
	p, m := float64(k)/float64(n), float64(n)
	centre := p + z*z/(2*m)
	half := z * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	whole := 1 + z*z/m
	low, high := (centre-half)/whole, (centre+half)/whole
	if k == 0 {
		low = 0
	}
	if k == n {
		high = 1
	}
	return Interval{max(low, 0), min(high, 1)}
}

// ClopperPearson returns the exact two-sided interval of a rate, given k hits in n draws (Clopper and Pearson 1934,
// "The use of confidence or fiducial limits illustrated in the case of the binomial"). The confidence is between 0
// and 1. For n = 0 the interval is 0..1.
func ClopperPearson(k, n int, confidence float64) Interval {
	tail := (1 - confidence) / 2
	return Interval{Low: LowerBound(float64(k), float64(n), tail), High: upperBound(float64(k), float64(n), tail)}
}
