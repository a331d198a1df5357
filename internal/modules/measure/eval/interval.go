package eval

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// upperBound returns the exact one-sided bound: the p at which k or fewer hits in n draws have probability tail. k
// and n need not be whole.
func upperBound(k, n, tail float64) float64 {
	if k >= n {
		return 1
	}
	return betaQuantile(1-tail, k+1, n-k)
}

// LowerBound returns the exact one-sided lower bound; see upperBound.
func LowerBound(k, n, tail float64) float64 {
	if k <= 0 || n <= 0 {
		return 0
	}
	return betaQuantile(tail, k, n-k+1)
}

// FewGroups is the number of groups below which bounds do not generalise well to other groups.
const FewGroups = 30

// NewRate returns a rate whose bounds hold even if the cases of a group are similar. A group of m cases has weight m in
// the rate, but counts as a single draw.
//
// squares is the sum of m*m over the groups. n*n/squares is the number of equally weighted draws with the same
// information (Kish 1965, "Survey Sampling", 11.2, for the greatest similarity within groups). It is the number of
// groups if all have the same size, and n if each has one case. Then the bounds are those of Clopper and Pearson.
func NewRate(k, n int, squares, confidence float64) Rate {
	r := Rate{K: k, N: n, Upper: 1, High: 1}
	if n == 0 {
		return r
	}
	r.Draws = float64(n) * float64(n) / squares
	hits, tail := r.Hits(), (1-confidence)/2
	r.Low, r.High, r.Upper = LowerBound(hits, r.Draws, tail), upperBound(hits, r.Draws, tail), upperBound(hits, r.Draws, 1-confidence)
	r.Value = new(float64(k) / float64(n))
	return r
}

// Hits returns the hits scaled to the number of draws.
func (r Rate) Hits() float64 { return float64(r.K) * r.Draws / float64(r.N) }

// tally counts hits among rows that arrive sorted by group.
type tally struct {
	k, n    int
	group   string
	here    int // rows of the current group so far
	squares float64
}

func (t *tally) add(group string, hit bool) {
	if group != t.group {
		t.group, t.here = group, 0
	}
	t.squares += float64(2*t.here + 1)
	t.here++
	t.n++
	if hit {
		t.k++
	}
}

func (t *tally) rate(confidence float64) Rate { return NewRate(t.k, t.n, t.squares, confidence) }

// groupSizes counts rows by group, with groups in any order.
type groupSizes map[uint32]int

// add counts a row, and returns how much the sum of squares grows.
func (s groupSizes) add(group uint32) float64 {
	s[group]++
	return float64(2*s[group] - 1)
}

// ratioOf returns part/whole, nil if whole is 0 or less.
func ratioOf(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	return new(part / whole)
}

func betaQuantile(p, a, b float64) float64 { return mathext.InvRegIncBeta(a, b, p) }

// resampleGroups makes the given number of resamples. For each, it draws as many groups as there are, with replacement,
// and calls use with how often each group was drawn. Every resample has its own random stream, so the n-th does not
// depend on the number of resamples. use must not keep its argument.
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

// Sample collects a figure over resamples.
type Sample struct {
	values    []float64
	undefined int
}

// Add adds the figure of a resample; nil if it is undefined there.
func (s *Sample) Add(v *float64) {
	if v == nil {
		s.undefined++
		return
	}
	s.values = append(s.values, *v)
}

// interval returns the interval of the figure. It is nil if the figure is undefined in more than half of the resamples.
func (s *Sample) interval(confidence float64) *Interval {
	if len(s.values) == 0 || s.undefined > len(s.values) {
		return nil
	}
	slices.Sort(s.values)
	tail := (1 - confidence) / 2
	return &Interval{Low: interpolateQuantile(s.values, tail), High: interpolateQuantile(s.values, 1-tail)}
}

// Estimate returns the figure with its interval.
func (s *Sample) Estimate(value *float64, confidence float64) Estimate {
	return Estimate{Value: value, Interval: s.interval(confidence), Undefined: s.undefined}
}

// interpolateQuantile interpolates between sorted values (type 7 of Hyndman and Fan 1996). There must be at least
// one.
func interpolateQuantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// TableFigure is a figure that follows from a Table alone.
type TableFigure struct {
	Name string
	Of   func(*Table) *float64
}

// TableFigures lists the figures that a comparison of two runs shows.
var TableFigures = []TableFigure{
	{"falseApprove", func(t *Table) *float64 { return ratioOf(float64(t.falseOK()), float64(t.mustNot())) }},
	{"escalation", func(t *Table) *float64 { return ratioOf(float64(t.countGiven(escalate)), float64(t.total())) }},
	{"accuracy", func(t *Table) *float64 { return ratioOf(float64(t.countExact()), float64(t.total())) }},
	{"gateAccuracy", func(t *Table) *float64 { return ratioOf(float64(t.countGate()), float64(t.total())) }},
	{"kappa", (*Table).kappa},
}

// ResampleTables draws groups of rows with replacement, and calls use with the table of each resample. paired holds the
// rows of another judge on the same cases, in the same order, or is nil. Its rows are drawn together with the first
// ones.
func ResampleTables(rows, paired []Row, o Options, use func(of, ofPaired *Table)) {
	// Groups with equal tables are joined, so that a resample is summed over classes instead of groups.
	starts, index := groupStarts(rows), map[[2]Table]uint32{}
	class, tables := make([]uint32, len(starts)-1), [2][]Table{}
	for g := range class {
		key := [2]Table{NewTable(rows[starts[g]:starts[g+1]])}
		if paired != nil {
			key[1] = NewTable(paired[starts[g]:starts[g+1]])
		}
		at, ok := index[key]
		if !ok {
			at = uint32(len(index)) //nolint:gosec // fewer than groups, which fit
			index[key] = at
			tables[0], tables[1] = append(tables[0], key[0]), append(tables[1], key[1])
		}
		class[g] = at
	}
	counts := make([]int, len(index))
	resampleGroups(len(class), o.Resamples, o.Seed, func(drawn []uint32) {
		clear(counts)
		for g, times := range drawn {
			counts[class[g]] += int(times)
		}
		of, ofPaired := sumWeighted(tables[0], counts), Table{}
		if paired != nil {
			ofPaired = sumWeighted(tables[1], counts)
		}
		use(&of, &ofPaired)
	})
}

func sumWeighted(tables []Table, counts []int) (sum Table) {
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
