package eval

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Evaluate compares results with cases. Options out of range count as absent; call Options.Validate first. Its memory
// and time are linear in the number of cases and results. It modifies neither of them.
func Evaluate(cases []Case, results []Result, o Options) Report {
	o = o.WithDefaults()
	s := Join(cases, results, o)
	t := NewTable(s.Rows)
	r := Report{Options: o, Counts: s.Counts, Confusion: t.confusion()}
	r.Evaluated, r.NotEvaluated = s.isEvaluable(o)
	r.Incomplete = s.Counts.Missing+s.Counts.FailedResults > 0
	r.setRates(&s, o.Confidence)
	r.setIntervals(&t, s.Rows, o)
	all, groups := listForecasts(s.Rows)
	r.Probability = scoreProbability(all, groups, maxBins, o)
	if approvals := slices.DeleteFunc(slices.Clone(all), func(f forecast) bool { return !f.leans }); len(approvals) > 0 {
		r.ApprovalConfidence = scoreConfidence(approvals, func(p float64) float64 { return p }, o)
	}
	r.Approvals = riskCurve(listApprovals(all), o.Confidence)
	r.Flips = s.countFlips(o.Confidence)
	r.Baselines = computeBaselines(s.Rows, o)
	r.Slices, r.SlicesLeftOut = slicesOf(s.Rows, o.Confidence)
	countLost(r.Slices, s.lost)
	r.Criteria = scoreCriteria(s.Rows, o.Confidence)
	r.Cost = s.sumCosts()
	r.Worst = listWorst(s.Rows, maxWorst)
	r.Notes = r.notes()
	return r
}

// isEvaluable reports whether enough cases have an outcome.
func (s *Joined) isEvaluable(o Options) (ok bool, why string) {
	c := s.Counts
	lost := c.Missing + c.Failed
	switch {
	case c.Cases == 0:
		return false, "there are no cases in the splits asked for"
	case c.Scored == 0:
		return false, fmt.Sprintf("none of the %d cases has an outcome that counts", c.Cases)
	case float64(lost) > *o.MaxFailures*float64(c.Cases):
		return false, fmt.Sprintf("%d of %d cases have no outcome (%d failed, %d have no result), more than %.3g %%", lost, c.Cases, c.Failed, c.Missing, 100**o.MaxFailures)
	}
	return true, ""
}

func (r *Report) setRates(s *Joined, confidence float64) {
	var of scores
	for _, w := range s.Rows {
		of.add(w)
	}
	r.FalseApprove = of.falseApprove.rate(confidence)
	r.WrongApprovals = RateOf(s.Rows, confidence, func(w Row) bool { return w.Got == judge.Approve }, Row.MustNot)
	r.FalseRefuse = of.falseRefuse.rate(confidence)
	r.FalseReject = RateOf(s.Rows, confidence, func(w Row) bool { return !w.MustNot() }, func(w Row) bool { return w.Got == judge.Reject })
	r.Escalation = of.escalation.rate(confidence)
	r.Unreadable = s.unreadable.rate(confidence)
	r.Accuracy = of.accuracy.rate(confidence)
	r.GateAccuracy = of.gate.rate(confidence)
	r.Reasons = rateReasons(s.Rows, confidence)
}

func (r *Report) setIntervals(t *Table, rows []Row, o Options) {
	var kappas, outcomeKappas Sample
	ResampleTables(rows, nil, o, func(drawn, _ *Table) {
		kappas.Add(drawn.kappa())
		outcomeKappas.Add(drawn.outcomeKappa())
	})
	r.Kappa = kappas.Estimate(t.kappa(), o.Confidence)
	r.OutcomeKappa = outcomeKappas.Estimate(t.outcomeKappa(), o.Confidence)
}

func (r *Report) notes() []string {
	c, percent := r.Counts, fmt.Sprintf("%.4g %%", 100*r.Options.Confidence)
	notes := []string{fmt.Sprintf("False-approve rate: approvals among the cases whose right outcome is reject or escalate. Its upper bound is one-sided, %s; intervals of other rates are two-sided. All of them count a group of cases as one draw; if every case is its own group they are exact (Clopper-Pearson).", percent)}
	say := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	say(!r.Evaluated, "Not evaluated: %s.", r.NotEvaluated)
	say(r.hasFewGroups(), "Only %d groups: below %d, intervals can miss the true value more often than stated. Add more groups, not more cases in the same groups.", c.Groups, FewGroups)
	say(c.ExpectEscalate > 0, "%d cases expect escalate; in two-way figures (false approvals, gate accuracy, kappa) they count as not to be approved, and escalating counts as not approving.", c.ExpectEscalate)
	say(c.Groups < c.Scored, "%d scored rows are in %d groups of like cases: bounds count a group as one draw, and bootstrap intervals resample groups.", c.Scored, c.Groups)
	say(r.Flips.MostRepeats > 1, "The first repeat that did not fail represents its case; the others count only for the flip rate.")
	say(true, "%d unreadable answers: %s.", c.Unreadable, DescribePolicy(r.Options.Unreadable))
	say(c.Failed+c.Missing > 0, "%d cases failed and %d have no result; they are left out of every rate.", c.Failed, c.Missing)
	say(r.Probability != nil && r.Probability.N < c.Scored, "Probabilities, curves and AUROC: only the %d rows with a readable answer of a model.", countProbabilities(r))
	say(r.Probability == nil, "No probabilities: no model answered, or none stated a confidence.")
	say(c.UnknownResults > 0, "%d results belong to none of the cases and were left out.", c.UnknownResults)
	say(c.DuplicateCases > 0, "%d cases repeat an earlier id and were left out.", c.DuplicateCases)
	say(c.DuplicateResults > 0, "%d results repeat an earlier case and repeat and were left out.", c.DuplicateResults)
	say(countSynthetic(c) > 0, "%d of %d labels are synthetic: they show how the system works, not how well people would agree with the judge.", countSynthetic(c), c.Cases)
	say(c.Splits[Cal] > 0 && c.Splits[Test] > 0, "Cases of cal and test are reported together: figures are only honest on cases that nothing was fitted on.")
	return notes
}

func (r *Report) hasFewGroups() bool { return r.Counts.Scored > 0 && r.Counts.Groups < FewGroups }

func countProbabilities(r *Report) int {
	if r.Probability == nil {
		return 0
	}
	return r.Probability.N
}

// DescribePolicy states how unreadable answers count.
func DescribePolicy(p Policy) string {
	switch p {
	case AsWrong:
		return "counted as the worst wrong answer (approved if that is wrong, rejected if approving is right)"
	case Excluded:
		return "left out of every rate"
	default:
		return "counted with the outcome that the pipeline gave them"
	}
}

func countSynthetic(c Counts) int {
	for _, l := range c.Labels {
		if strings.EqualFold(l.Name, "synthetic") {
			return l.Count
		}
	}
	return 0
}

// countFlips compares the repeats of each case. An unreadable answer counts with the outcome that the pipeline gave
// it.
func (s *Joined) countFlips(confidence float64) Flips {
	var f Flips
	var flipped tally
	for _, c := range s.Cases {
		n := 0
		seen := map[judge.Outcome]bool{}
		for _, r := range s.by[c.ID] {
			if !IsFailed(r) {
				n++
				seen[r.Outcome] = true
			}
		}
		f.MostRepeats = max(f.MostRepeats, n)
		if n < 2 {
			continue
		}
		flipped.add(c.GroupKey(), len(seen) > 1)
	}
	f.Rate = flipped.rate(confidence)
	return f
}

// GradeOutcome returns how bad an outcome is, from 0 (right) to 4 (a false approval).
func GradeOutcome(w Row) int {
	switch {
	case w.FalseApprove():
		return 4
	case !w.isGateRight() && w.Got == judge.Reject:
		return 3
	case !w.isGateRight():
		return 2
	case !w.IsExact():
		return 1
	}
	return 0
}

// listWorst lists false approvals, then rejections of cases that should be approved, then the rest; within each, the
// highest confidence comes first.
func listWorst(rows []Row, most int) []WorstCase {
	var wrong []Row
	for _, w := range rows {
		if GradeOutcome(w) > 0 {
			wrong = append(wrong, w)
		}
	}
	slices.SortStableFunc(wrong, func(a, b Row) int {
		return cmp.Or(cmp.Compare(GradeOutcome(b), GradeOutcome(a)), cmp.Compare(b.Result.Confidence, a.Result.Confidence), cmp.Compare(a.Case.ID, b.Case.ID))
	})
	all := []WorstCase{}
	for _, w := range wrong[:min(len(wrong), most)] {
		all = append(all, WorstCase{
			Case: w.Case.ID, Expected: w.Expect, Got: w.Got, Unreadable: w.Result.Unreadable, Confidence: w.Result.Confidence,
			DecidedBy: w.Result.DecidedBy, Code: w.Result.Code, Reasoning: w.Result.Reasoning,
		})
	}
	return all
}

// The names of the baselines.
const (
	BaselineApprove    = "always_approve"
	BaselineReject     = "always_reject"
	BaselineStructural = "structural"
)

func computeBaselines(rows []Row, o Options) []Baseline {
	all := []Baseline{}
	add := func(name, about string, outcome func(Row) judge.Outcome) {
		var s scores
		for _, w := range rows {
			if w.Got = outcome(w); w.Got != "" {
				s.add(w)
			}
		}
		all = append(all, Baseline{
			Name: name, About: about, N: s.total(),
			FalseApprove: s.falseApprove.rate(o.Confidence), Escalation: s.escalation.rate(o.Confidence),
			Accuracy: s.accuracy.rate(o.Confidence), GateAccuracy: s.gate.rate(o.Confidence), Kappa: s.kappa(),
		})
	}
	always := func(k int) func(Row) judge.Outcome { return func(Row) judge.Outcome { return outcomes[k] } }
	add(BaselineApprove, "approves everything", always(approve))
	add(BaselineReject, "rejects everything", always(reject))
	if len(o.Structural) > 0 {
		first := FirstResults(o.Structural)
		add(BaselineStructural, "the same pipeline without a model", func(w Row) judge.Outcome {
			if r := first[w.Case.ID]; r != nil && !IsFailed(r) {
				return r.Outcome
			}
			return ""
		})
	}
	return all
}

func (s *Joined) sumCosts() Cost {
	var c Cost
	var asked, deterministic []document.Milliseconds
	rungs, models, deciders, assurances, codes := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, of := range s.Cases {
		for _, r := range s.by[of.ID] {
			if IsFailed(r) {
				continue
			}
			c.Results++
			c.add(r)
			switch {
			case r.Took <= 0: // not recorded
			case r.Calls > 0 && !r.CacheHit:
				asked = append(asked, r.Took)
			case r.Calls == 0 && !r.CacheHit && r.Approval == nil:
				deterministic = append(deterministic, r.Took)
			}
			countName(rungs, r.Rung)
			countName(models, r.Model)
			countName(deciders, string(r.DecidedBy))
			countName(assurances, string(r.Assurance))
			countName(codes, r.Code)
		}
	}
	c.Latency, c.Deterministic = measureLatency(asked), measureLatency(deterministic)
	c.Rungs, c.Models, c.DecidedBy, c.Assurance, c.Codes = sortTallies(rungs), sortTallies(models), sortTallies(deciders), sortTallies(assurances), sortTallies(codes)
	return c
}

func countName(counts map[string]int, name string) {
	if name != "" {
		counts[name]++
	}
}

func (c *Cost) add(r *Result) {
	c.Calls += r.Calls
	for _, flag := range []struct {
		set bool
		n   *int
	}{{r.CacheHit, &c.CacheHits}, {r.Degraded, &c.Degraded}, {r.Lenient, &c.Lenient}} {
		if flag.set {
			*flag.n++
		}
	}
	if r.Calls == 0 {
		return // no call, so no cost
	}
	c.Asked++
	c.PromptTokens.add(asFloat(r.PromptTokens))
	c.CompletionTokens.add(asFloat(r.CompletionTokens))
	c.CostUSD.add(r.CostUSD)
}

func asFloat(n *int) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

func (s *Sum) add(v *float64) {
	if v == nil {
		s.Unknown++
		return
	}
	s.Known++
	s.Total += *v
}

func measureLatency(all []document.Milliseconds) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	slices.Sort(all)
	// The smallest value that at least p percent of the values do not exceed (nearest rank).
	at := func(p int) document.Milliseconds { return all[max((len(all)*p+99)/100, 1)-1] }
	return Latency{N: len(all), P50: at(50), P95: at(95), Max: all[len(all)-1]}
}
