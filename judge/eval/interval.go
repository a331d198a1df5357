package eval

import "math"

// ClopperPearson returns the exact two-sided interval of a rate of which k of n were
// seen (Clopper and Pearson 1934, "The use of confidence or fiducial limits illustrated
// in the case of the binomial"). The confidence is between 0 and 1. With n = 0 nothing
// is known: 0 and 1.
func ClopperPearson(k, n int, confidence float64) Interval {
	tail := (1 - confidence) / 2
	return Interval{Low: lowerBound(k, n, tail), High: upperBound(k, n, tail)}
}

// UpperBound returns the exact one-sided upper bound of a rate of which k of n were
// seen: with the confidence given the rate lies below it.
func UpperBound(k, n int, confidence float64) float64 { return upperBound(k, n, 1-confidence) }

// LowerBound is the other side of UpperBound.
func LowerBound(k, n int, confidence float64) float64 { return lowerBound(k, n, 1-confidence) }

// upperBound is the p at which k or fewer of n are as rare as tail.
func upperBound(k, n int, tail float64) float64 {
	if k >= n {
		return 1
	}
	return betaQuantile(1-tail, float64(k)+1, float64(n-k))
}

func lowerBound(k, n int, tail float64) float64 {
	if k <= 0 || n <= 0 {
		return 0
	}
	return betaQuantile(tail, float64(k), float64(n-k)+1)
}

// ApprovalsNeeded returns how many approvals, of which wrong are wrong, it takes until
// the exact upper bound of the risk is at most target: 59 with none wrong for a target
// of 0.05 at 0.95. Target and confidence are between 0 and 1.
func ApprovalsNeeded(wrong int, target, confidence float64) int {
	// The bound is at most target when, at a risk of target, so few wrong ones are rare.
	enough := func(n int) bool {
		return n > wrong && betaCDF(1-target, float64(n-wrong), float64(wrong)+1) <= 1-confidence
	}
	high := wrong + 1
	for !enough(high) {
		if high > math.MaxInt32 {
			return math.MaxInt // a target of next to nothing
		}
		high *= 2
	}
	low := wrong // never enough
	for high-low > 1 {
		if mid := low + (high-low)/2; enough(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

func newRate(k, n int, confidence float64) Rate {
	both := ClopperPearson(k, n, confidence)
	r := Rate{K: k, N: n, Low: both.Low, High: both.High, Upper: UpperBound(k, n, confidence)}
	r.Value = ratioOf(float64(k), float64(n))
	return r
}

// ratioOf is nil without a whole.
func ratioOf(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	return new(part / whole)
}

// betaQuantile inverts betaCDF by bisection: about 60 steps to the last bit, without a
// starting value that could go astray.
func betaQuantile(p, a, b float64) float64 {
	low, high := 0.0, 1.0
	for range 200 {
		mid := low + (high-low)/2
		if mid <= low || mid >= high {
			break
		}
		if betaCDF(mid, a, b) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return low + (high-low)/2
}

// betaCDF is the regularised incomplete beta function I_x(a, b), by its continued
// fraction (Abramowitz and Stegun 26.5.8) with the method of Lentz.
func betaCDF(x, a, b float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	case x > (a+1)/(a+b+2): // where the fraction converges fast
		return 1 - betaCDF(1-x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab - la - lb + a*math.Log(x) + b*math.Log1p(-x))
	return front * betaFraction(x, a, b) / a
}

func betaFraction(x, a, b float64) float64 {
	const tiny, exact = 1e-300, 1e-16
	away := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/away(1-(a+b)*x/(a+1))
	f := d
	for i := 1; i <= 10_000; i++ {
		m := float64(i)
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d, c = 1/away(1+even*d), away(1+even/c)
		f *= c * d
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d, c = 1/away(1+odd*d), away(1+odd/c)
		step := c * d
		f *= step
		if math.Abs(step-1) < exact*10 {
			break
		}
	}
	return f
}
