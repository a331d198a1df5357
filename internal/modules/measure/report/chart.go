package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/modules/measure/compare"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
)

// RunPage returns the page of a run, with its cases and the judge's answers to each.
func RunPage(m eval.Measurement) (Page, error) {
	p := Page{Page: m.Page(), Title: "How good the judge is", SystemPrompts: m.SystemPrompts}
	changed := map[string]string{}
	if m.Baseline != nil {
		c, err := compare.ReadBaseline(m.Baseline)
		if err != nil {
			return p, err
		}
		p.Tables, changed = append(p.Tables, c.DifferenceTable(), c.ChangeTable()), c.LabelChanges()
	}
	p.Cases = viewCases([]judgedRun{{"", &m}}, changed)
	if r := m.Report.Probability; r != nil {
		p.charts = append(p.charts, reliabilityChart(r.Bins))
	}
	return p, nil
}

// ComparisonPage returns the page of a comparison of two runs, with the changed cases first.
func ComparisonPage(c compare.Comparison, before, after eval.Measurement) Page {
	runs := []judgedRun{{"before", &before}, {"after", &after}}
	return Page{
		Page: ComparisonText(c, before, after), Title: "Two runs compared",
		SystemPrompts: systemPrompts(runs), Cases: viewCases(runs, c.LabelChanges()),
	}
}

// ComparisonText returns the report on a comparison without cases.
func ComparisonText(c compare.Comparison, before, after eval.Measurement) eval.Page {
	return eval.Page{
		Conclusion: c.Conclude(), Header: [][]string{{"before", describeRun(before)}, {"after", describeRun(after)}},
		Figures: c.Figures(), Notes: c.Notes, Tables: []eval.Grid{c.DifferenceTable(), c.ChangeTable()}, Cautions: after.Page().Cautions,
	}
}

// describeRun describes a run in one line.
func describeRun(m eval.Measurement) string {
	parts := []string{m.About.Judge}
	if len(m.About.Prompts) > 0 {
		parts = append(parts, "prompt "+strings.Join(m.About.Prompts, ", "))
	}
	return eval.OneLine(strings.Join(append(parts, fmt.Sprintf("%d cases of %s", m.Report.Counts.Cases, strings.Join(m.About.Sets, ", "))), "; "))
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

// chart is a drawing. Its coordinates lie in a square with sides of 320.
type chart struct {
	Title, Across, Up string
	Ideal             string // a path; it contains only numbers that this program computed
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

// chartX and chartY convert shares 0..1 to coordinates.
func chartX(v float64) float64 { return chartLeft + v*(chartRight-chartLeft) }
func chartY(v float64) float64 { return chartBottom - v*(chartBottom-chartTop) }

func formatPoint(x, y float64) string { return fmt.Sprintf("%.1f %.1f", x, y) }

func axisTicks() []tick {
	var all []tick
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
		all = append(all,
			tick{chartX(v), chartBottom + 16, "middle", fmt.Sprintf("%.2g", v)},
			tick{chartLeft - 5, chartY(v) + 4, "end", fmt.Sprintf("%.2g", v)})
	}
	return all
}

// reliabilityChart plots the share of cases that should be approved against the stated probability. A calibrated judge
// lies on the diagonal.
func reliabilityChart(bins []eval.Bin) chart {
	c := chart{
		Title: "Reliability: on the line, stated and true agree; bars are exact intervals", Across: "stated probability", Up: "should be approved",
		Ideal: "M" + formatPoint(chartX(0), chartY(0)) + "L" + formatPoint(chartX(1), chartY(1)), Ticks: axisTicks(),
	}
	for _, b := range bins {
		if b.Share.Value == nil {
			continue
		}
		x := chartX(b.Mean)
		c.Dots = append(c.Dots, dot{
			X: roundTenth(x), Y: roundTenth(chartY(*b.Share.Value)),
			Whisker: "M" + formatPoint(x, chartY(b.Share.Low)) + "L" + formatPoint(x, chartY(b.Share.High)),
			Title:   fmt.Sprintf("%d answers, stated %.3f, true %s", b.N, b.Mean, b.Share.String()),
		})
	}
	return c
}

func roundTenth(v float64) float64 { return float64(int(v*10+0.5)) / 10 }
