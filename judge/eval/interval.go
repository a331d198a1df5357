package eval

import (
	"math"
	"math/rand/v2"
	"slices"
)

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

// resampleGroups draws groups with replacement, as many as there are, so many times, and
// passes on how often each was drawn. Every resample has its own random stream, so the
// n-th is the same however many are asked for. use must not keep its argument.
func resampleGroups(groups, times int, seed uint64, use func(drawn []uint32)) {
	if groups <= 0 || int64(groups) > math.MaxUint32 {
		return
	}
	drawn := make([]uint32, groups)
	for i := range times {
		clear(drawn)
		source := rand.NewPCG(seed, uint64(i))
		from := rand.New(source) //nolint:gosec // a bootstrap must be repeatable
		for range groups {
			drawn[from.Uint32N(uint32(groups))]++
		}
		use(drawn)
	}
}

type sample struct {
	values    []float64
	undefined int
}

func (s *sample) add(v *float64) {
	if v == nil {
		s.undefined++
		return
	}
	s.values = append(s.values, *v)
}

// interval is nil when more than half of the resamples have no figure.
func (s *sample) interval(confidence float64) *Interval {
	if len(s.values) == 0 || s.undefined > len(s.values) {
		return nil
	}
	slices.Sort(s.values)
	tail := (1 - confidence) / 2
	return &Interval{Low: interpolateQuantile(s.values, tail), High: interpolateQuantile(s.values, 1-tail)}
}

func (s *sample) estimate(value *float64, confidence float64) Estimate {
	return Estimate{Value: value, Interval: s.interval(confidence), Undefined: s.undefined}
}

// interpolateQuantile interpolates between sorted values (type 7 of Hyndman and Fan 1996). There
// is at least one.
func interpolateQuantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// classes of groups with equal sums: a resample is summed over them instead of over its
// cases.
type classes[T comparable] struct {
	of   []uint32 // group -> class
	sums []T
}

func classifyGroups[T comparable](groups int, sum func(g int) T) classes[T] {
	c := classes[T]{of: make([]uint32, groups)}
	index := map[T]uint32{}
	for g := range groups {
		v := sum(g)
		at, ok := index[v]
		if !ok {
			at = uint32(len(c.sums)) //nolint:gosec // fewer than groups, which fit
			index[v] = at
			c.sums = append(c.sums, v)
		}
		c.of[g] = at
	}
	return c
}

func (c classes[T]) count(drawn []uint32, counts []int) {
	clear(counts)
	for g, times := range drawn {
		counts[c.of[g]] += int(times)
	}
}

// figures that follow from a table alone. A Comparison gives the difference of all but
// the last.
var figures = []struct {
	name string
	of   func(*table) *float64
}{
	{"falseApprove", func(t *table) *float64 { return ratioOf(float64(t.falseOK()), float64(t.mustNot())) }},
	{"escalation", func(t *table) *float64 { return ratioOf(float64(t.countGiven(escalate)), float64(t.total())) }},
	{"accuracy", func(t *table) *float64 { return ratioOf(float64(t.countExact()), float64(t.total())) }},
	{"gateAccuracy", func(t *table) *float64 { return ratioOf(float64(t.countGate()), float64(t.total())) }},
	{"kappa", (*table).kappa},
	{"outcomeKappa", (*table).outcomeKappa},
}

func bootstrapTable(rows []row, o Options) map[string]*sample {
	starts := groupStarts(rows)
	groups := len(starts) - 1
	c := classifyGroups(groups, func(g int) table { return newTable(rows[starts[g]:starts[g+1]]) })
	samples := map[string]*sample{}
	for _, f := range figures {
		samples[f.name] = &sample{}
	}
	counts := make([]int, len(c.sums))
	resampleGroups(groups, o.Resamples, o.Seed, func(drawn []uint32) {
		c.count(drawn, counts)
		t := sumWeighted(c.sums, counts)
		for _, f := range figures {
			samples[f.name].add(f.of(&t))
		}
	})
	return samples
}

func sumWeighted(tables []table, counts []int) (sum table) {
	for at, times := range counts {
		if times == 0 {
			continue
		}
		for i := range kinds {
			for j := range kinds {
				sum[i][j] += times * tables[at][i][j]
			}
		}
	}
	return sum
}
