package eval

import (
	"math"
	"math/rand/v2"
	"slices"
)

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
