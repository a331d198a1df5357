package eval

import (
	"github.com/gavel-mcp/gavel/judge"
)

// outcomes lists the outcomes in the order of a Table.
var outcomes = [...]judge.Outcome{judge.Approve, judge.Reject, judge.Escalate}

// The indices of outcomes.
const (
	approve = iota
	reject
	escalate
	kinds
)

// indexOf returns the index of o in outcomes. An unknown outcome counts as reject, because it must never count as an
// approval.
func indexOf(o judge.Outcome) int {
	switch o {
	case judge.Approve:
		return approve
	case judge.Escalate:
		return escalate
	default:
		return reject
	}
}

// Table counts the right outcome (first index) against the given one (second).
type Table [kinds][kinds]int

func (t *Table) add(w Row) { t[indexOf(w.Expect)][indexOf(w.Got)]++ }

// NewTable counts the outcomes of rows.
func NewTable(rows []Row) (t Table) {
	for _, w := range rows {
		t.add(w)
	}
	return t
}

func (t *Table) countExpected(k int) int { return t[k][approve] + t[k][reject] + t[k][escalate] }
func (t *Table) countGiven(k int) int    { return t[approve][k] + t[reject][k] + t[escalate][k] }

func (t *Table) total() int {
	return t.countGiven(approve) + t.countGiven(reject) + t.countGiven(escalate)
}
func (t *Table) mustNot() int { return t.countExpected(reject) + t.countExpected(escalate) }
func (t *Table) falseOK() int { return t[reject][approve] + t[escalate][approve] }
func (t *Table) countExact() int {
	return t[approve][approve] + t[reject][reject] + t[escalate][escalate]
}
func (t *Table) countGate() int    { return t[approve][approve] + t.mustNot() - t.falseOK() }
func (t *Table) countRefused() int { return t[approve][reject] + t[approve][escalate] }

func (t *Table) cells() []int {
	flat := make([]int, 0, kinds*kinds)
	for _, of := range t {
		flat = append(flat, of[:]...)
	}
	return flat
}

// kappa treats reject and escalate as one category; outcomeKappa distinguishes all three outcomes.
func (t *Table) kappa() *float64 {
	return kappaOf([]int{t[approve][approve], t.countRefused(), t.falseOK(), t.mustNot() - t.falseOK()})
}
func (t *Table) outcomeKappa() *float64 { return kappaOf(t.cells()) }

func (t *Table) confusion() Confusion {
	got := func(k int) OutcomeCounts { return OutcomeCounts{t[k][approve], t[k][reject], t[k][escalate]} }
	r, e := got(reject), got(escalate)
	return Confusion{
		ExpectApprove: got(approve), ExpectReject: r, ExpectEscalate: e,
		ExpectNotApprove: OutcomeCounts{r.Approve + e.Approve, r.Reject + e.Reject, r.Escalate + e.Escalate},
	}
}

// scores holds the rates of rows that arrive sorted by group.
type scores struct {
	Table
	falseApprove, falseRefuse, escalation, accuracy, gate tally
}

func (s *scores) add(w Row) {
	s.Table.add(w)
	if w.MustNot() {
		s.falseApprove.add(w.Group, w.FalseApprove())
	} else {
		s.falseRefuse.add(w.Group, w.Got != judge.Approve)
	}
	s.escalation.add(w.Group, indexOf(w.Got) == escalate)
	s.accuracy.add(w.Group, w.IsExact())
	s.gate.add(w.Group, w.isGateRight())
}

// RateOf returns the rate of hits among the rows selected by in. The rows must be sorted by group.
func RateOf(rows []Row, confidence float64, in, hit func(Row) bool) Rate {
	var t tally
	for _, w := range rows {
		if in(w) {
			t.add(w.Group, hit(w))
		}
	}
	return t.rate(confidence)
}

// kappaOf returns Cohen's kappa of a square table, given row by row (Cohen 1960, "A coefficient of agreement for
// nominal scales"). 1 is full agreement, 0 is chance, and below 0 is less than chance. It is nil if there are no
// items, or if both raters used a single category, the same one.
func kappaOf(counts []int) *float64 {
	k := 0
	for k*k < len(counts) {
		k++
	}
	var n, same, chance float64
	for i := range k {
		var row, column float64
		for j := range k {
			row += float64(counts[i*k+j])
			column += float64(counts[j*k+i])
		}
		n += row
		same += float64(counts[i*k+i])
		chance += row * column
	}
	if n == 0 || chance == n*n {
		return nil
	}
	return new((same*n - chance) / (n*n - chance))
}
