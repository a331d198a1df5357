package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/internal/modules/measure/compare"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
)

// MatrixFormat is the format name at the beginning of a matrix file.
const MatrixFormat = "gavel-eval-matrix-1"

// Matrix holds the same cases judged by several judges.
type Matrix struct {
	Cells []eval.Cell
	// against holds the comparisons of the first cell with each of the others.
	against []compare.Comparison
}

// NewMatrix compares every cell with the first. Each comparison uses a higher confidence, so that together they keep
// the confidence of the run (Bonferroni).
func NewMatrix(cells []eval.Cell) (Matrix, error) {
	m := Matrix{Cells: cells}
	for i := range cells[1:] {
		run := &cells[i+1].Run
		o := run.Report.Options
		o.Confidence = 1 - (1-o.Confidence)/float64(len(cells)-1)
		c := compare.Compare(cells[0].Run.Cases, cells[0].Run.Results, run.Results, o)
		var err error
		if run.Baseline, err = c.Baseline(); err != nil {
			return m, err
		}
		m.against = append(m.against, c)
	}
	return m, nil
}

// Conclude summarises a matrix: it passes if every cell passes.
func (m Matrix) Conclude() eval.Conclusion {
	order := []eval.Status{eval.StatusNotEvaluated, eval.StatusGateFailed, eval.StatusRegression, eval.StatusIncomplete, eval.StatusPassed}
	out := eval.Conclusion{Status: eval.StatusPassed}
	var failed []string
	gated := false
	for _, c := range m.Cells {
		of := c.Run.Conclude()
		gated = gated || len(c.Run.Gates) > 0
		if slices.Index(order, of.Status) < slices.Index(order, out.Status) {
			out.Status = of.Status
		}
		if of.Status != eval.StatusPassed {
			why, _, _ := strings.Cut(strings.TrimPrefix(of.Says, "FAILED: "), ": ") // the tables show the rest
			failed = append(failed, fmt.Sprintf("%s (%s)", eval.OneLine(c.Name), why))
		}
	}
	switch {
	case len(failed) > 0:
		out.Says = fmt.Sprintf("FAILED: %d of %d cells: %s", len(failed), len(m.Cells), strings.Join(failed, ", "))
	case gated:
		out.Says = fmt.Sprintf("PASSED: all gates hold in all %d cells, and none is significantly worse than the first", len(m.Cells))
	default:
		out.Says = fmt.Sprintf("PASSED: none of %d cells is significantly worse than the first; no gate was given (--gates FILE)", len(m.Cells))
	}
	return out
}

func (m Matrix) cellTable() eval.Grid {
	t := eval.Grid{Title: "Cells", Head: []string{"cell", "", "false approve", "at most", "false refuse", "escalation", "accuracy", "kappa", "ECE", "unreadable", "p50", "tokens", "cost"}}
	for _, c := range m.Cells {
		r := c.Run.Report
		word, latency, ece := "FAILED", "-", "-"
		if c.Run.Conclude().Status == eval.StatusPassed {
			word = "passed"
		}
		if l := r.Cost.Latency; l.N > 0 {
			latency = eval.RoundTime(l.P50).String()
		}
		if r.Probability != nil {
			ece = eval.FormatDecimal(&r.Probability.ECE)
		}
		t.Rows = append(t.Rows, []string{
			c.Name, word, r.FalseApprove.String(), eval.FormatPercent(r.FalseApprove.Upper), r.FalseRefuse.String(), r.Escalation.String(),
			r.Accuracy.String(), eval.FormatDecimal(r.Kappa.Value), ece, strconv.Itoa(r.Counts.Unreadable), latency,
			r.Cost.PromptTokens.Format("%.0f") + " + " + r.Cost.CompletionTokens.Format("%.0f"), r.Cost.CostUSD.Format("%.4f USD"),
		})
	}
	return t
}

func (m Matrix) differenceTable() eval.Grid {
	t := eval.Grid{Title: "Against " + m.Cells[0].Name, Head: []string{"cell", "new false approvals", "gone", "false approve", "interval", "accuracy", "interval", "says"}}
	for i, c := range m.against {
		row := []string{m.Cells[i+1].Name, strconv.Itoa(c.FalseApprove.B), strconv.Itoa(c.FalseApprove.C)}
		for _, name := range []string{"falseApprove", "accuracy"} {
			at := slices.IndexFunc(c.Differences, func(d compare.Difference) bool { return d.Name == name })
			if at < 0 {
				row = append(row, "-", "-")
				continue
			}
			change := c.Differences[at].Change
			row = append(row, eval.FormatDecimal(change.Value), cmp.Or(change.Bounds(), "-"))
		}
		t.Rows = append(t.Rows, append(row, c.Says))
	}
	return t
}

func (m Matrix) gateTable() eval.Grid {
	t := eval.Grid{Title: "Gates that do not hold", Head: []string{"", "cell", "gate"}}
	for _, c := range m.Cells {
		for _, g := range c.Run.Gates {
			if !g.Passed {
				t.Rows = append(t.Rows, []string{"FAILED", c.Name, g.Says})
			}
		}
	}
	return t
}

// cautions returns the warnings of all cells without duplicates.
func (m Matrix) cautions() []string {
	var out []string
	for _, c := range m.Cells {
		for _, words := range c.Run.Page().Cautions {
			if !slices.Contains(out, words) {
				out = append(out, words)
			}
		}
	}
	return out
}

func (m Matrix) notes() []string {
	n, of := len(m.against), m.against[0].Options.Confidence
	differences := fmt.Sprintf("Differences are of the same cases, cell minus %s, at %.4g %%; their intervals resample groups.", m.Cells[0].Name, 100*of)
	if n > 1 {
		differences += fmt.Sprintf(" All %d together keep %.4g %% (Bonferroni).", n, 100*m.Cells[0].Run.Report.Options.Confidence)
	}
	return []string{differences, "The best of several cells on these cases looks better than it is: choose on dev or cal, and report the one chosen on test."}
}

// Text returns the report on a matrix without cases. Its header is that of the first cell, without the judge.
func (m Matrix) Text() eval.Page {
	header := slices.DeleteFunc(m.Cells[0].Run.Page().Header, func(row []string) bool { return row[0] == "judge" || row[0] == "prompt" })
	return eval.Page{
		Conclusion: m.Conclude(), Gates: m.cellTable(), Header: header, Cautions: m.cautions(),
		Notes: m.notes(), Tables: []eval.Grid{m.differenceTable(), m.gateTable()},
	}
}

// Page returns the page of a matrix, with the answers of all cells to each case.
func (m Matrix) Page() Page {
	runs := make([]judgedRun, 0, len(m.Cells))
	changed := map[string]string{}
	for _, c := range m.Cells {
		runs = append(runs, judgedRun{c.Name, &c.Run})
	}
	for _, c := range m.against {
		for _, d := range c.Changed {
			changed[d.Case] = "other than " + m.Cells[0].Name
		}
	}
	return Page{Page: m.Text(), Title: "Judges compared", SystemPrompts: systemPrompts(runs), Cases: viewCases(runs, changed)}
}

type cellOnFile struct {
	Name string          `json:"name"`
	Run  json.RawMessage `json:"run"`
}

type matrixOnFile struct {
	Format     string          `json:"format"`
	Conclusion eval.Conclusion `json:"conclusion"`
	Cells      []cellOnFile    `json:"cells"`
}

// WriteMatrix writes a matrix file; the run of each cell has the form of a results file.
func WriteMatrix(w io.Writer, m Matrix) error {
	out := matrixOnFile{Format: MatrixFormat, Conclusion: m.Conclude()}
	for _, c := range m.Cells {
		var b bytes.Buffer
		if err := eval.WriteJSON(&b, c.Run); err != nil {
			return err
		}
		out.Cells = append(out.Cells, cellOnFile{c.Name, b.Bytes()})
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return fmt.Errorf("write the matrix: %w", err)
	}
	return nil
}

// ReadMatrix reads a matrix file.
func ReadMatrix(r io.Reader) (Matrix, error) {
	var in matrixOnFile
	if err := json.NewDecoder(r).Decode(&in); err != nil {
		return Matrix{}, fmt.Errorf("this is not the file of a matrix: %w", err)
	}
	if in.Format != MatrixFormat || len(in.Cells) < 2 {
		return Matrix{}, errors.New("this is not the file of a matrix")
	}
	var m Matrix
	for _, c := range in.Cells {
		run, err := eval.ReadMeasurement(bytes.NewReader(c.Run))
		if err != nil {
			return Matrix{}, fmt.Errorf("cell %s: %w", c.Name, err)
		}
		if len(m.Cells) > 0 {
			if run.Baseline == nil {
				return Matrix{}, fmt.Errorf("cell %s has no comparison with the first", c.Name)
			}
			against, err := compare.ReadBaseline(run.Baseline)
			if err != nil {
				return Matrix{}, fmt.Errorf("cell %s: %w", c.Name, err)
			}
			m.against = append(m.against, against)
		}
		m.Cells = append(m.Cells, eval.Cell{Name: c.Name, Run: run})
	}
	return m, nil
}
