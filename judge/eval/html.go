package eval

import (
	"fmt"
	"slices"
	"strings"
)

// Page returns the page of a run, with its cases and the judge's answers to each.
func (m Measurement) Page() Page {
	p := Page{
		Title: "How good the judge is", Conclusion: m.Conclude(), Gates: m.gateTable(),
		Header: figureRows(m.header()), Figures: figureRows(m.figures()), Cautions: m.cautions(), Notes: m.Report.Notes,
		Tables: m.tables(), SystemPrompts: m.SystemPrompts,
	}
	changed := map[string]string{}
	if m.Baseline != nil {
		p.Figures = append(p.Figures, []string{"against the baseline", m.Baseline.Says, ""})
		changed = m.Baseline.labelChanges()
	}
	if worst := m.Report.Worst; len(worst) > 0 {
		l := Listing{Title: "Worst cases"}
		for _, w := range worst {
			l.Items = append(l.Items, w.words())
		}
		p.Listings = []Listing{l}
	}
	p.viewCases = func() []PageCase { return viewCases([]judgedRun{{"", &m}}, changed) }
	if r := m.Report.Probability; r != nil {
		p.charts = append(p.charts, reliabilityChart(r.Bins))
	}
	if c := m.Report.Selective; c != nil {
		p.charts = append(p.charts, riskChart("Risk over coverage, all answers", c))
	}
	if c := m.Report.Approvals; c != nil {
		p.charts = append(p.charts, riskChart("Risk over coverage, approvals", c))
	}
	return p
}

// Page returns the page of a comparison of two runs, with the changed cases first.
func (c Comparison) Page(before, after Measurement) Page {
	runs := []judgedRun{{"before", &before}, {"after", &after}}
	return Page{
		Title: "Two runs compared", Conclusion: c.Conclude(), Header: [][]string{{"before", before.describe()}, {"after", after.describe()}},
		Figures: figureRows(c.figures()), Notes: c.Notes, Tables: []Grid{c.differenceTable(), c.changeTable()}, Cautions: after.cautions(),
		SystemPrompts: systemPrompts(runs), viewCases: func() []PageCase { return viewCases(runs, c.labelChanges()) },
	}
}

// systemPrompts returns the system prompts of all runs without duplicates.
func systemPrompts(runs []judgedRun) (all []string) {
	for _, r := range runs {
		for _, text := range r.SystemPrompts {
			if !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

// labelChanges returns, for each case that changed, whether it got better.
func (c Comparison) labelChanges() map[string]string {
	out := map[string]string{}
	for _, d := range c.Changed {
		switch {
		case d.After == d.Expected:
			out[d.Case] = "became right"
		case d.Before == d.Expected:
			out[d.Case] = "no longer right"
		default:
			out[d.Case] = "wrong in another way"
		}
	}
	return out
}

// chart is a drawing; its coordinates lie in a square of 320.
type chart struct {
	Title, Across, Up string
	Ideal, Curve      string // paths; they contain only numbers of this program
	Ticks             []tick
	Dots              []dot
}

type tick struct {
	X, Y         float64
	Anchor, Text string
}

type dot struct {
	X, Y           float64
	Whisker, Title string
}

// The edges of the plot area within the square.
const (
	chartLeft, chartRight = 56.0, 310.0
	chartTop, chartBottom = 10.0, 280.0
)

// chartX and chartY convert shares 0..1 to coordinates; top is the value at the upper edge.
func chartX(v float64) float64      { return chartLeft + v*(chartRight-chartLeft) }
func chartY(v, top float64) float64 { return chartBottom - min(v/top, 1)*(chartBottom-chartTop) }

func formatPoint(x, y float64) string { return fmt.Sprintf("%.1f %.1f", x, y) }

func axisTicks(top float64) []tick {
	var all []tick
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
		all = append(all,
			tick{chartX(v), chartBottom + 16, "middle", fmt.Sprintf("%.2g", v)},
			tick{chartLeft - 5, chartY(v*top, top) + 4, "end", fmt.Sprintf("%.2g", v*top)})
	}
	return all
}

// reliabilityChart plots the share that should be approved over the stated probability. A calibrated judge lies on
// the diagonal.
func reliabilityChart(bins []Bin) chart {
	c := chart{
		Title: "Reliability: on the line, stated and true agree; bars are exact intervals", Across: "stated probability", Up: "should be approved",
		Ideal: "M" + formatPoint(chartX(0), chartY(0, 1)) + "L" + formatPoint(chartX(1), chartY(1, 1)), Ticks: axisTicks(1),
	}
	for _, b := range bins {
		if b.Share.Value == nil {
			continue
		}
		x := chartX(b.Mean)
		c.Dots = append(c.Dots, dot{
			X: roundTenth(x), Y: roundTenth(chartY(*b.Share.Value, 1)),
			Whisker: "M" + formatPoint(x, chartY(b.Share.Low, 1)) + "L" + formatPoint(x, chartY(b.Share.High, 1)),
			Title:   fmt.Sprintf("%d answers, stated %.3f, true %s", b.N, b.Mean, b.Share.String()),
		})
	}
	return c
}

func riskChart(title string, of *RiskCurve) chart {
	top := 0.05
	for _, p := range of.Points {
		if p.Risk.Value != nil {
			top = max(top, *p.Risk.Value)
		}
	}
	c := chart{Title: fmt.Sprintf("%s: AURC %.3f, best order %.3f", title, of.AURC, of.Best), Across: "coverage", Up: "risk", Ticks: axisTicks(top)}
	var path strings.Builder
	for _, p := range of.Points {
		if p.Risk.Value == nil {
			continue
		}
		letter := "L"
		if path.Len() == 0 {
			letter = "M"
		}
		path.WriteString(letter + formatPoint(chartX(p.Coverage), chartY(*p.Risk.Value, top)))
	}
	c.Curve = path.String()
	return c
}

func roundTenth(v float64) float64 { return float64(int(v*10+0.5)) / 10 }
