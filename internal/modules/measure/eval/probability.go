package eval

import (
	"cmp"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/judge"
)

// forecast is one answer of a model: its probability that an approval is right, and whether the case should be
// approved.
type forecast struct {
	p     float64
	good  bool
	group uint32 // counted from 0 among the forecasts
	// leans reports whether the model itself approved, whatever policy decided afterwards.
	leans bool
}

// listForecasts lists the rows in which a model gave a readable answer, sorted by group.
func listForecasts(rows []Row) (all []forecast, groups int) {
	last := ""
	for _, w := range rows {
		p, ok := approvalProbability(w.Result)
		if !ok {
			continue
		}
		if groups == 0 || w.Group != last {
			groups++
			last = w.Group
		}
		all = append(all, forecast{p: p, good: !w.MustNot(), group: uint32(groups - 1), leans: LeansToApprove(w.Result)}) //nolint:gosec // at most the number of rows
	}
	return all, groups
}

// approvalProbability returns ok = false if no model answered, or if its answer is unreadable or not a probability.
func approvalProbability(r *Result) (p float64, ok bool) {
	if r.Approval == nil || r.Unreadable || !(*r.Approval >= 0 && *r.Approval <= 1) {
		return 0, false
	}
	return *r.Approval, true
}

// LeansToApprove reports whether the model approved, whatever policy decided afterwards. If the model approved,
// Approval equals Confidence; otherwise it is 1 - Confidence. At exactly one half, only Code distinguishes the two.
func LeansToApprove(r *Result) bool {
	if r.Outcome == judge.Approve {
		return true
	}
	asApproval := math.Abs(*r.Approval - r.Confidence)
	asRefusal := math.Abs(1 - *r.Approval - r.Confidence)
	if math.Abs(asApproval-asRefusal) < 1e-9 {
		return r.Code == "low_confidence"
	}
	return asApproval < asRefusal
}

func scoreProbability(all []forecast, groups, bins int, o Options) *Probability {
	if len(all) == 0 {
		return nil
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, byProbability)
	p := &Probability{N: len(all), Bins: binForecasts(sorted, bins, o.Confidence)}
	var squares, good float64
	for _, f := range sorted {
		squares += f.square()
		good += f.value()
	}
	n := float64(len(all))
	p.Base = good / n
	p.BrierBase = p.Base * (1 - p.Base)
	brier := squares / n
	for _, b := range p.Bins {
		p.ECE += math.Abs(b.Mean-*b.Share.Value) * float64(b.N) / n
	}
	brierBoot, aurocBoot := bootstrapForecasts(sorted, groups, o)
	p.Brier = brierBoot.Estimate(new(brier), o.Confidence)
	p.AUROC = aurocBoot.Estimate(areaUnderROC(sorted, nil), o.Confidence)
	return p
}

func byProbability(a, b forecast) int {
	good := func(f forecast) int { return int(f.value()) }
	return cmp.Or(cmp.Compare(a.p, b.p), cmp.Compare(a.group, b.group), cmp.Compare(good(a), good(b)))
}

func (f forecast) value() float64 {
	if f.good {
		return 1
	}
	return 0
}

func (f forecast) square() float64 { return (f.p - f.value()) * (f.p - f.value()) }

// binForecasts makes bins of equal size. Equal probabilities stay together, so there may be fewer bins. sorted must
// be in ascending order.
func binForecasts(sorted []forecast, want int, confidence float64) []Bin {
	var all []Bin
	n, begin, done := len(sorted), 0, 0
	for i := range sorted {
		last := i+1 == n
		if !last && sorted[i+1].p == sorted[i].p {
			continue
		}
		if !last && (i+1)*want < (done+1)*n {
			continue
		}
		done = (i + 1) * want / n
		all = append(all, binOf(sorted[begin:i+1], confidence))
		begin = i + 1
	}
	return all
}

func binOf(part []forecast, confidence float64) Bin {
	b := Bin{Low: part[0].p, High: part[len(part)-1].p, N: len(part)}
	good, squares, sizes := 0, 0.0, groupSizes{}
	for _, f := range part {
		b.Mean += f.p
		good += int(f.value())
		squares += sizes.add(f.group)
	}
	b.Mean /= float64(len(part))
	b.Share = NewRate(good, len(part), squares, confidence)
	return b
}

// areaUnderROC computes the area from forecasts in ascending order (Mann and Whitney's U over the number of pairs).
// Each forecast counts as often as its group was drawn, or once if drawn is nil. It returns nil unless there are both
// good and bad cases.
func areaUnderROC(sorted []forecast, drawn []uint32) *float64 {
	var good, bad, wins float64 // so far
	for i := 0; i < len(sorted); {
		var goodHere, badHere float64
		at := sorted[i].p
		for ; i < len(sorted) && sorted[i].p == at; i++ {
			times := 1.0
			if drawn != nil {
				times = float64(drawn[sorted[i].group])
			}
			if sorted[i].good {
				goodHere += times
			} else {
				badHere += times
			}
		}
		wins += goodHere * (bad + badHere/2)
		good += goodHere
		bad += badHere
	}
	if good == 0 || bad == 0 {
		return nil
	}
	return new(wins / (good * bad))
}

func bootstrapForecasts(sorted []forecast, groups int, o Options) (brier, area *Sample) {
	squares, n := make([]float64, groups), make([]float64, groups)
	for _, f := range sorted {
		squares[f.group] += f.square()
		n[f.group]++
	}
	brier, area = &Sample{}, &Sample{}
	resampleGroups(groups, o.Resamples, o.Seed, func(drawn []uint32) {
		var sum, count float64
		for g, times := range drawn {
			sum += float64(times) * squares[g]
			count += float64(times) * n[g]
		}
		brier.Add(ratioOf(sum, count))
		area.Add(areaUnderROC(sorted, drawn))
	})
	return brier, area
}
