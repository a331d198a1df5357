package measure

import (
	"io"

	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/measure/compare"
	"github.com/gavel-mcp/gavel/internal/modules/measure/report"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/eval"
)

// reports implements module.Reports.
type reports struct{}

func (reports) CheckSame(before, after eval.Measurement) error {
	return compare.CheckSame(before, after)
}

func (reports) Compare(before, after eval.Measurement) (*eval.BaselineResult, error) {
	if err := compare.CheckSame(before, after); err != nil {
		return nil, err
	}
	return compare.Runs(before, after).Baseline()
}

func (reports) Tables(b *eval.BaselineResult) ([]eval.Grid, error) {
	c, err := compare.ReadBaseline(b)
	return []eval.Grid{c.DifferenceTable(), c.ChangeTable()}, err
}

func (reports) HTML(w io.Writer, m eval.Measurement) error {
	page, err := report.RunPage(m)
	if err != nil {
		return err
	}
	return page.HTML(w)
}

func (reports) Matrix(cells []eval.Cell) (module.Renderings, eval.Conclusion, error) {
	m, err := report.NewMatrix(cells)
	if err != nil {
		return nil, eval.Conclusion{}, err
	}
	return renderMatrix(m), m.Conclude(), nil
}

func (reports) ReadMatrix(r io.Reader) (module.Renderings, error) {
	m, err := report.ReadMatrix(r)
	if err != nil {
		return nil, err
	}
	return renderMatrix(m), nil
}

func renderMatrix(m report.Matrix) module.Renderings {
	return module.Renderings{
		".txt":  func(w io.Writer) error { return m.Text().Text(w, term.Align) },
		".html": func(w io.Writer) error { return m.Page().HTML(w) },
		".json": func(w io.Writer) error { return report.WriteMatrix(w, m) },
		".xml":  func(w io.Writer) error { return eval.JUnit(w, m.Cells...) },
		".jsonl": func(w io.Writer) error {
			for _, c := range m.Cells {
				if err := eval.WriteAllLines(w, c); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
