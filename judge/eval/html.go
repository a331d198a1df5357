package eval

import (
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"
)

// HTML writes a report as one page that needs nothing else: no scripts, nothing from
// other hosts, dark and light as the reader prefers. What comes from cases and models
// is escaped.
func HTML(w io.Writer, m Measurement) error {
	page := htmlPage{
		Header: m.header(), Cautions: m.cautions(), Figures: m.figures(), Notes: m.Report.Notes, Tables: m.tables(),
	}
	for _, c := range m.Report.Worst {
		c.Case, c.Reasoning, c.Notes = OneLine(c.Case), visibleText(c.Reasoning), visibleText(c.Notes)
		page.Worst = append(page.Worst, c)
	}
	if m.Baseline != nil {
		page.Baseline = m.Baseline.Says
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

type htmlPage struct {
	Header, Figures []figure
	Cautions, Notes []string
	Baseline        string
	Tables          []Grid
	Charts          []chart
	Worst           []WorstCase
}

// Line is for the template.
func (w WorstCase) Line() string { return w.describe() }

var htmlTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>How good the judge is</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #667; --line: #d5d9e0; --mark: #1a5fb4; --warn: #fff4d6; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #14171b; --soft: #9aa3ad; --line: #343b44; --mark: #78aeed; --warn: #3a3010; --bad: #ff8a80; } }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.grid th, .grid td { white-space: nowrap; } .grid td:last-child { white-space: normal; min-width: 9rem; }
.pairs th { white-space: nowrap; } .pairs td { overflow-wrap: anywhere; min-width: 6rem; }
@media (max-width: 40rem) { .pairs tr { display: block; padding: .35rem 0; border-bottom: 1px solid var(--line); } .pairs th, .pairs td { display: block; border: 0; padding: 0; } }
.failed td:first-child { color: var(--bad); font-weight: 700; }
th { color: var(--soft); font-weight: 600; }
.caution { background: var(--warn); padding: .6rem .8rem; border-radius: .4rem; }
.first td { font-size: 1.15rem; font-weight: 700; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 1rem 0 0; flex: 1 1 17rem; max-width: 24rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; } .axis { stroke: var(--line); fill: none; } .ideal { stroke: var(--soft); stroke-dasharray: 4 4; fill: none; }
.curve { stroke: var(--mark); stroke-width: 2; fill: none; } .dot { fill: var(--mark); } .whisker { stroke: var(--mark); opacity: .5; }
article { border-left: 3px solid var(--bad); padding-left: .8rem; margin: 1rem 0; } blockquote { margin: .4rem 0 0; color: var(--soft); white-space: pre-wrap; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>How good the judge is</h1>
<table class="pairs">{{range .Header}}<tr><th>{{.Name}}</th><td>{{.Value}}</td></tr>
{{end}}</table>
{{range .Cautions}}<p class="caution">{{.}}</p>
{{end}}<h2>Figures</h2>
<table class="pairs">{{range $i, $f := .Figures}}<tr{{if eq $i 0}} class="first"{{end}}><th>{{.Name}}</th><td>{{.Value}}</td><td>{{.Note}}</td></tr>
{{end}}</table>
{{if .Baseline}}<p>Against the baseline: {{.Baseline}}</p>
{{end}}{{if .Charts}}<div class="charts">
{{range .Charts}}<figure><svg viewBox="0 0 320 320" role="img" aria-label="{{.Title}}">
<path class="axis" d="M56 10V280H310"/>
{{range .Ticks}}<text x="{{.X}}" y="{{.Y}}" text-anchor="{{.Anchor}}">{{.Text}}</text>{{end}}
<text x="183" y="314" text-anchor="middle">{{.Across}}</text><text x="12" y="145" text-anchor="middle" transform="rotate(-90 12 145)">{{.Up}}</text>
{{if .Ideal}}<path class="ideal" d="{{.Ideal}}"/>{{end}}{{if .Curve}}<path class="curve" d="{{.Curve}}"/>{{end}}
{{range .Dots}}<path class="whisker" d="{{.Whisker}}"/><circle class="dot" cx="{{.X}}" cy="{{.Y}}" r="4"><title>{{.Title}}</title></circle>{{end}}
</svg><figcaption>{{.Title}}</figcaption></figure>
{{end}}</div>
{{end}}{{range .Tables}}<h2>{{.Title}}</h2>
<div class="scroll" tabindex="0"><table class="grid"><tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr>
{{range .Rows}}<tr{{if eq (index . 0) "FAILED"}} class="failed"{{end}}>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table></div>
{{end}}{{if .Worst}}<h2>Worst cases</h2>
{{range .Worst}}<article><strong>{{.Case}}</strong>: {{.Line}}{{if .Notes}}<br>{{.Notes}}{{end}}{{if .Reasoning}}<blockquote>{{.Reasoning}}</blockquote>{{end}}</article>
{{end}}{{end}}{{if .Notes}}<h2>Notes</h2>
<ul>{{range .Notes}}<li>{{.}}</li>
{{end}}</ul>
{{end}}</body>
</html>
`))
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
