package eval

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"sync"
)

// HTML writes a report as one page that needs nothing else: no scripts, nothing from
// other hosts, dark and light as the reader prefers. What comes from cases and models
// is escaped.
func HTML(w io.Writer, m Measurement) error {
	page := m.page()
	for i, c := range page.Worst {
		page.Worst[i].Case, page.Worst[i].Reasoning, page.Worst[i].Notes = OneLine(c.Case), visibleText(c.Reasoning), visibleText(c.Notes)
	}
	if p := m.Report.Probability; p != nil {
		page.Charts = append(page.Charts, reliabilityChart(p.Bins))
	}
	if c := m.Report.Selective; c != nil {
		page.Charts = append(page.Charts, riskChart("Risk over coverage, all answers", c))
	}
	if c := m.Report.Approvals; c != nil {
		page.Charts = append(page.Charts, riskChart("Risk over coverage, approvals", c))
	}
	var b strings.Builder
	if err := htmlTemplate().Execute(&b, page); err != nil {
		return err
	}
	return writeText(w, b.String())
}

type reportPage struct {
	Conclusion      Conclusion
	Header, Figures []figure
	Cautions, Notes []string
	Baseline        string
	Tables          []Grid
	Charts          []chart
	Worst           []WorstCase
}

func (m Measurement) page() reportPage {
	p := reportPage{
		Conclusion: m.Conclude(),
		Header:     m.header(), Cautions: m.cautions(), Figures: m.figures(), Notes: m.Report.Notes, Tables: m.tables(),
		Worst: slices.Clone(m.Report.Worst),
	}
	if m.Baseline != nil {
		p.Baseline = m.Baseline.Says
	}
	return p
}

// Line is for the templates.
func (w WorstCase) Line() string { return w.describe() }

//go:embed report.html.tmpl
var htmlText string

var htmlTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Parse(htmlText))
})

// chart has coordinates in a square of 320.
type chart struct {
	Title, Across, Up string
	Ideal, Curve      string // paths; numbers of this program only
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

// The corners of the drawing inside of the square.
const (
	chartLeft, chartRight = 56.0, 310.0
	chartTop, chartBottom = 10.0, 280.0
)

// chartX and chartY place shares 0..1; top is the value at the upper end.
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

// reliabilityChart plots the share that should be approved over the stated probability:
// a calibrated judge is on the diagonal.
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
			Title:   fmt.Sprintf("%d answers, stated %.3f, true %s", b.N, b.Mean, b.Share.format()),
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
