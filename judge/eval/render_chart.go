package eval

import (
	"fmt"
	"strings"
)

// chart is what the page draws: coordinates are of a square of 320.
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

// chartX and up place shares 0..1; top is what the upper end stands for.
func chartX(v float64) float64      { return chartLeft + v*(chartRight-chartLeft) }
func chartY(v, top float64) float64 { return chartBottom - min(v/top, 1)*(chartBottom-chartTop) }

func formatPoint(x, y float64) string { return fmt.Sprintf("%.1f %.1f", x, y) }

// axisTicks are the numbers at both axes.
func axisTicks(top float64) []tick {
	var all []tick
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
		all = append(all,
			tick{chartX(v), chartBottom + 16, "middle", fmt.Sprintf("%.2g", v)},
			tick{chartLeft - 5, chartY(v*top, top) + 4, "end", fmt.Sprintf("%.2g", v*top)})
	}
	return all
}

// reliabilityChart sets the share that should be approved over the probability stated:
// a judge that knows itself is on the diagonal.
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
			Title:   fmt.Sprintf("%d answers, stated %.3f, true %s", b.N, b.Mean, b.Share.share()),
		})
	}
	return c
}

// riskChart draws risk over the share of answers that is kept.
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
