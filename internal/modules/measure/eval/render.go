package eval

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// The renderers are pure functions of a Measurement. They compute no statistics. They show a nil figure as missing,
// never as 0.

// missing replaces a figure that is unavailable.
const missing = "-"

type figure struct{ Name, Value, Note string }

// FormatPercent formats a share with one decimal.
func FormatPercent(v float64) string { return strconv.FormatFloat(100*v, 'f', 1, 64) + " %" }

// FormatDecimal formats a figure with three decimals, "-" for nil.
func FormatDecimal(v *float64) string {
	if v == nil {
		return missing
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

// String returns the share with its counts, "-" if there is none.
func (r Rate) String() string {
	if r.Value == nil {
		return missing
	}
	return fmt.Sprintf("%s (%d of %d)", FormatPercent(*r.Value), r.K, r.N)
}

// Bounds returns the two-sided interval as text, "" if there is none.
func (r Rate) Bounds() string {
	if r.Value == nil {
		return ""
	}
	return FormatPercent(r.Low) + " to " + FormatPercent(r.High)
}

// Bounds returns the interval as text, "" if there is none.
func (e Estimate) Bounds() string {
	if e.Interval == nil {
		return ""
	}
	return fmt.Sprintf("%.3f to %.3f", e.Interval.Low, e.Interval.High)
}

// Page is a report as text and tables.
type Page struct {
	Conclusion Conclusion // the zero value is omitted
	Gates      Grid
	// Header and Figures are rows of a name and its values.
	Header, Figures [][]string
	Cautions, Notes []string
	Listings        []Listing
	Tables          []Grid
}

// Listing describes cases in words: one line for each, with details below it.
type Listing struct {
	Title string
	Items [][]string
}

// Page returns the report on a run.
func (m Measurement) Page() Page {
	p := Page{
		Conclusion: m.Conclude(), Gates: m.gateTable(), Header: figureRows(m.header()), Figures: figureRows(m.figures()),
		Cautions: m.cautions(), Notes: m.Report.Notes, Tables: m.Report.tables(),
	}
	if m.Baseline != nil {
		p.Figures = append(p.Figures, []string{"against the baseline", m.Baseline.Says, ""})
	}
	if worst := m.Report.Worst; len(worst) > 0 {
		l := Listing{Title: "Worst cases"}
		for _, w := range worst {
			l.Items = append(l.Items, w.words())
		}
		p.Listings = []Listing{l}
	}
	return p
}

func (m Measurement) header() []figure {
	c, a := m.Report.Counts, m.About
	lines := []figure{
		{Name: "set", Value: orMissing(strings.Join(a.Sets, ", "))},
		{Name: "digest", Value: c.Digest},
		{Name: "cases", Value: fmt.Sprintf("%d scored of %d (approve %d, reject %d, escalate %d) in %d groups", c.Scored, c.Cases, c.ExpectApprove, c.ExpectReject, c.ExpectEscalate, c.Groups)},
		{Name: "splits", Value: fmt.Sprintf("dev %d, cal %d, test %d", c.Splits[Dev], c.Splits[Cal], c.Splits[Test])},
		{Name: "labels", Value: joinTallies(c.Labels)},
		{Name: "judge", Value: a.Judge},
	}
	if len(a.Tags) > 0 {
		lines = append(lines, figure{Name: "tags", Value: strings.Join(a.Tags, ", ")})
	}
	if a.Mode != "" {
		lines = append(lines, figure{Name: "mode", Value: a.Mode})
	}
	if len(a.Prompts) > 0 {
		lines = append(lines, figure{Name: "prompt", Value: strings.Join(a.Prompts, ", ")})
	}
	if a.Repeats > 1 {
		lines = append(lines, figure{Name: "repeats", Value: strconv.Itoa(a.Repeats)})
	}
	return lines
}

// cautions returns warnings that must be read before the figures.
func (m Measurement) cautions() []string {
	var out []string
	if !m.Report.Evaluated {
		out = append(out, "Not evaluated: "+m.Report.NotEvaluated+". The figures show nothing about the judge.")
	}
	if c := m.Report.Counts; m.Report.Incomplete {
		out = append(out, fmt.Sprintf("Incomplete: %d of %d results have no outcome, and %d cases no result. The figures cover only the rest; run it again, or with fewer parallel calls.", c.FailedResults, c.Results, c.Missing))
	}
	if n := countSynthetic(m.Report.Counts); n > 0 {
		out = append(out, fmt.Sprintf("%d of %d labels are synthetic: they come from the author of the case, so the figures test the system and do not predict a judge's quality in practice.", n, m.Report.Counts.Cases))
	}
	if r := m.Report; r.hasFewGroups() {
		out = append(out, fmt.Sprintf("Only %d groups, fewer than %d: intervals can miss the true value more often than stated.", r.Counts.Groups, FewGroups))
	}
	return append(out, m.About.Remarks...)
}

func (m Measurement) figures() []figure {
	r := m.Report
	confidence := FormatPercent(r.Options.Confidence)
	lines := []figure{
		{"false-approve rate", r.FalseApprove.String(), "at most " + FormatPercent(r.FalseApprove.Upper) + " (one-sided, " + confidence + ")"},
		{"wrong among approvals", r.WrongApprovals.String(), "at most " + FormatPercent(r.WrongApprovals.Upper)},
		{"escalation rate", r.Escalation.String(), r.Escalation.Bounds()},
		{"false-refuse rate", r.FalseRefuse.String(), r.FalseRefuse.Bounds()},
		{"false-reject rate", r.FalseReject.String(), r.FalseReject.Bounds()},
		{"unreadable answers", r.Unreadable.String(), "policy: " + string(r.Options.Unreadable)},
		{"accuracy, three outcomes", r.Accuracy.String(), r.Accuracy.Bounds()},
		{"accuracy, approve or not", r.GateAccuracy.String(), r.GateAccuracy.Bounds()},
		{"right reason given", r.Reasons.String(), r.Reasons.Bounds()},
		{"kappa, approve or not", FormatDecimal(r.Kappa.Value), r.Kappa.Bounds()},
		{"kappa, three outcomes", FormatDecimal(r.OutcomeKappa.Value), r.OutcomeKappa.Bounds()},
	}
	if p := r.Probability; p != nil {
		lines = append(lines,
			figure{"Brier score", FormatDecimal(p.Brier.Value), fmt.Sprintf("%s; always stating the base rate: %.3f", p.Brier.Bounds(), p.BrierBase)},
			figure{"ECE", FormatDecimal(&p.ECE), fmt.Sprintf("over %d answers", p.N)},
			figure{"AUROC", FormatDecimal(p.AUROC.Value), p.AUROC.Bounds()})
	}
	if a := r.ApprovalConfidence; a != nil {
		lines = append(lines,
			figure{"model's approvals, right", a.Right.String(), fmt.Sprintf("%s; mean confidence %.3f", a.Right.Bounds(), a.Mean)},
			figure{"ECE of approvals", FormatDecimal(a.ECE.Value), fmt.Sprintf("%s; over %d approvals in %d groups", orMissing(a.ECE.Bounds()), a.N, a.Groups)})
	}
	if r.Flips.MostRepeats > 1 {
		lines = append(lines, figure{"flip rate", r.Flips.Rate.String(), r.Flips.Rate.Bounds()})
	}
	return append(lines, r.Cost.figures()...)
}

func (c Cost) figures() []figure {
	lines := []figure{{"without a model", fmt.Sprintf("%d of %d results", c.Results-c.Asked, c.Results), c.Deterministic.format()}}
	if c.Asked == 0 {
		return lines
	}
	return append(lines,
		figure{"asked a model", fmt.Sprintf("%d results, %d calls", c.Asked, c.Calls), c.Latency.format()},
		figure{"prompt tokens", c.PromptTokens.Format("%.0f"), ""},
		figure{"completion tokens", c.CompletionTokens.Format("%.0f"), ""},
		figure{"cost of the run", c.CostUSD.Format("%.4f USD"), c.CostUSD.adviseOnPrices()},
		figure{"forms of answers", joinTallies(c.Rungs), fmt.Sprintf("%d repaired, %d degraded, %d from the cache", c.Lenient, c.Degraded, c.CacheHits)})
}

// Format formats the amount, and states whether it is incomplete.
func (s Sum) Format(format string) string {
	switch {
	case s.Known == 0:
		return "unknown"
	case s.Unknown > 0:
		return fmt.Sprintf(format+" (unknown for %d)", s.Total, s.Unknown)
	}
	return fmt.Sprintf(format, s.Total)
}

func (s Sum) adviseOnPrices() string {
	if s.Known > 0 {
		return ""
	}
	return "set --llm-price-in and --llm-price-out (USD per million tokens)"
}

func (l Latency) format() string {
	if l.N == 0 {
		return ""
	}
	return fmt.Sprintf("p50 %v, p95 %v, max %v", RoundTime(l.P50), RoundTime(l.P95), RoundTime(l.Max))
}

// RoundTime rounds a duration for readers.
func RoundTime(m document.Milliseconds) time.Duration {
	d := m.Duration()
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

func joinTallies(all []Tally) string {
	parts := make([]string, 0, len(all))
	for _, t := range all {
		parts = append(parts, fmt.Sprintf("%s %d", orMissing(t.Name), t.Count))
	}
	return orMissing(strings.Join(parts, ", "))
}

func orMissing(s string) string {
	if s == "" {
		return missing
	}
	return s
}

// Grid is a table of a report.
type Grid struct {
	Title string
	Head  []string
	Rows  [][]string
}

func (r Report) tables() []Grid {
	return []Grid{r.confusionTable(), r.baselineTable(), r.sliceTable(), r.criterionTable(), r.reliabilityTable(), r.approvalTable(), r.riskTable(), r.failureTable()}
}

func (m Measurement) gateTable() Grid {
	t := Grid{Title: "Gates", Head: []string{"", "gate"}}
	for _, g := range m.Gates {
		word := "FAILED"
		if g.Passed {
			word = "passed"
		}
		t.Rows = append(t.Rows, []string{word, g.Says})
	}
	return t
}

func (r Report) confusionTable() Grid {
	t := Grid{Title: "Confusion", Head: []string{"right", "approve", "reject", "escalate"}}
	for _, row := range []struct {
		name string
		got  OutcomeCounts
	}{
		{"approve", r.Confusion.ExpectApprove},
		{"not approve", r.Confusion.ExpectNotApprove},
		{"  reject", r.Confusion.ExpectReject},
		{"  escalate", r.Confusion.ExpectEscalate},
	} {
		t.Rows = append(t.Rows, []string{row.name, strconv.Itoa(row.got.Approve), strconv.Itoa(row.got.Reject), strconv.Itoa(row.got.Escalate)})
	}
	return t
}

func (r Report) baselineTable() Grid {
	t := Grid{Title: "Judges that ignore the case", Head: []string{"baseline", "false approve", "escalation", "accuracy", "approve or not", "kappa"}}
	for _, b := range r.Baselines {
		t.Rows = append(t.Rows, []string{b.Name, b.FalseApprove.String(), b.Escalation.String(), b.Accuracy.String(), b.GateAccuracy.String(), FormatDecimal(b.Kappa)})
	}
	return t
}

func (r Report) sliceTable() Grid {
	t := Grid{Title: "Slices", Head: []string{"slice", "n", "false approve", "at most", "false refuse", "escalation", "accuracy"}}
	for _, s := range r.Slices {
		bound := missing
		if s.FalseApprove.N > 0 {
			bound = FormatPercent(s.FalseApprove.Upper)
		}
		t.Rows = append(t.Rows, []string{s.Kind + ": " + s.Name, strconv.Itoa(s.N), s.FalseApprove.String(), bound, s.FalseRefuse.String(), s.Escalation.String(), s.Accuracy.String()})
	}
	if r.SlicesLeftOut > 0 {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("(%d smaller ones left out)", r.SlicesLeftOut), "", "", "", "", "", ""})
	}
	return t
}

func (r Report) criterionTable() Grid {
	t := Grid{Title: "Criteria", Head: []string{"criterion", "n", "wrongly met", "accuracy", "kappa", "unanswered"}}
	for _, c := range r.Criteria {
		t.Rows = append(t.Rows, []string{c.Workflow + ": " + c.Name, strconv.Itoa(c.N), c.FalseMet.String(), c.Accuracy.String(), FormatDecimal(c.Kappa), strconv.Itoa(c.Unanswered)})
	}
	return t
}

func (r Report) reliabilityTable() Grid {
	if r.Probability == nil {
		return Grid{}
	}
	return reliabilityGrid("Reliability (results with a model's answer)", "probability of an approval", "should be approved", r.Probability.Bins)
}

func (r Report) approvalTable() Grid {
	if r.ApprovalConfidence == nil {
		return Grid{}
	}
	return reliabilityGrid("Reliability of the model's approvals", "confidence", "right", r.ApprovalConfidence.Bins)
}

func reliabilityGrid(title, what, share string, bins []Bin) Grid {
	t := Grid{Title: title, Head: []string{what, "n", "mean", share, "interval"}}
	for _, b := range bins {
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%.3f to %.3f", b.Low, b.High), strconv.Itoa(b.N), fmt.Sprintf("%.3f", b.Mean), b.Share.String(), b.Share.Bounds()})
	}
	return t
}

// riskTable shows at most ten points of the risk curve of approvals.
func (r Report) riskTable() Grid {
	t := Grid{Title: "Risk of approvals by confidence kept", Head: []string{"at least", "coverage", "wrong approvals", "at most"}}
	if r.Approvals == nil {
		return t
	}
	points := r.Approvals.Points
	step := (len(points) + 9) / 10
	for i := 0; i < len(points); i += max(step, 1) {
		p := points[i]
		t.Rows = append(t.Rows, []string{fmt.Sprintf("%.3f", p.Threshold), FormatPercent(p.Coverage), p.Risk.String(), FormatPercent(p.Risk.Upper)})
	}
	return t
}

func (r Report) failureTable() Grid {
	t := Grid{Title: "Without an outcome", Head: []string{"why", "results"}}
	for _, f := range r.Counts.Failures {
		t.Rows = append(t.Rows, []string{f.Name, strconv.Itoa(f.Count)})
	}
	if r.Counts.Missing > 0 {
		t.Rows = append(t.Rows, []string{"no result at all", strconv.Itoa(r.Counts.Missing)})
	}
	return t
}
