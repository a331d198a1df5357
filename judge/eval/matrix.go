package eval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/internal/junit"
)

// MatrixFormat is the format name at the beginning of a matrix file.
const MatrixFormat = "gavel-eval-matrix-1"

// Cell is one judge of a matrix: a model with a prompt. The first cell is the Baseline of the others.
type Cell struct {
	Name string
	Run  Measurement
}

// Matrix holds the same cases judged by several judges.
type Matrix struct{ Cells []Cell }

// NewMatrix compares every cell with the first. Each comparison uses a higher confidence, so that all of them
// together keep the confidence of the run (Bonferroni).
func NewMatrix(cells []Cell) Matrix {
	for i := range cells[1:] {
		c := &cells[i+1]
		o := c.Run.Report.Options
		o.Confidence = 1 - (1-o.Confidence)/float64(len(cells)-1)
		c.Run.Baseline = new(Compare(cells[0].Run.Cases, cells[0].Run.Results, c.Run.Results, o))
	}
	return Matrix{cells}
}

// Conclude summarises a matrix: it passes if every cell passes.
func (m Matrix) Conclude() Conclusion {
	order := []Status{StatusNotEvaluated, StatusGateFailed, StatusRegression, StatusIncomplete, StatusPassed}
	out := Conclusion{Status: StatusPassed}
	var failed []string
	gated := false
	for _, c := range m.Cells {
		of := c.Run.Conclude()
		gated = gated || len(c.Run.Gates) > 0
		if slices.Index(order, of.Status) < slices.Index(order, out.Status) {
			out.Status = of.Status
		}
		if of.Status != StatusPassed {
			why, _, _ := strings.Cut(strings.TrimPrefix(of.Says, "FAILED: "), ": ") // the tables show the rest
			failed = append(failed, fmt.Sprintf("%s (%s)", OneLine(c.Name), why))
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

func (m Matrix) cellTable() Grid {
	t := Grid{Title: "Cells", Head: []string{"cell", "", "false approve", "at most", "false refuse", "escalation", "accuracy", "kappa", "ECE", "unreadable", "p50", "tokens", "cost"}}
	for _, c := range m.Cells {
		r := c.Run.Report
		word, latency, ece := "FAILED", missing, missing
		if c.Run.Conclude().Status == StatusPassed {
			word = "passed"
		}
		if l := r.Cost.Latency; l.N > 0 {
			latency = roundTime(l.P50).String()
		}
		if r.Probability != nil {
			ece = FormatDecimal(&r.Probability.ECE)
		}
		t.Rows = append(t.Rows, []string{
			c.Name, word, r.FalseApprove.String(), FormatPercent(r.FalseApprove.Upper), r.FalseRefuse.String(), r.Escalation.String(),
			r.Accuracy.String(), FormatDecimal(r.Kappa.Value), ece, strconv.Itoa(r.Counts.Unreadable), latency,
			r.Cost.PromptTokens.format("%.0f") + " + " + r.Cost.CompletionTokens.format("%.0f"), r.Cost.CostUSD.format("%.4f USD"),
		})
	}
	return t
}

func (m Matrix) differenceTable() Grid {
	t := Grid{Title: "Against " + m.Cells[0].Name, Head: []string{"cell", "new false approvals", "gone", "false approve", "interval", "accuracy", "interval", "says"}}
	for _, c := range m.Cells[1:] {
		row := []string{c.Name, strconv.Itoa(c.Run.Baseline.FalseApprove.B), strconv.Itoa(c.Run.Baseline.FalseApprove.C)}
		for _, name := range []string{"falseApprove", "accuracy"} {
			at := slices.IndexFunc(c.Run.Baseline.Differences, func(d Difference) bool { return d.Name == name })
			if at < 0 {
				row = append(row, missing, missing)
				continue
			}
			change := c.Run.Baseline.Differences[at].Change
			row = append(row, FormatDecimal(change.Value), orMissing(change.Bounds()))
		}
		t.Rows = append(t.Rows, append(row, c.Run.Baseline.Says))
	}
	return t
}

func (m Matrix) gateTable() Grid {
	t := Grid{Title: "Gates that do not hold", Head: []string{"", "cell", "gate"}}
	for _, c := range m.Cells {
		for _, g := range c.Run.Gates {
			if !g.Passed {
				t.Rows = append(t.Rows, []string{"FAILED", c.Name, g.Says})
			}
		}
	}
	return t
}

// cautions returns those of all cells without duplicates.
func (m Matrix) cautions() []string {
	var out []string
	for _, c := range m.Cells {
		for _, words := range c.Run.cautions() {
			if !slices.Contains(out, words) {
				out = append(out, words)
			}
		}
	}
	return out
}

func (m Matrix) notes() []string {
	n, of := len(m.Cells)-1, m.Cells[1].Run.Baseline.Options.Confidence
	differences := fmt.Sprintf("Differences are of the same cases, cell minus %s, at %.4g %%; their intervals resample groups.", m.Cells[0].Name, 100*of)
	if n > 1 {
		differences += fmt.Sprintf(" All %d together keep %.4g %% (Bonferroni).", n, 100*m.Cells[0].Run.Report.Options.Confidence)
	}
	return []string{differences, "The best of several cells on these cases looks better than it is: choose on dev or cal, and report the one chosen on test."}
}

// header returns the header of the first cell without its judge.
func (m Matrix) header() []figure {
	return slices.DeleteFunc(m.Cells[0].Run.header(), func(f figure) bool { return f.Name == "judge" || f.Name == "prompt" })
}

// Page returns the page of a matrix, with the answers of all cells to each case.
func (m Matrix) Page() Page {
	runs := make([]judgedRun, 0, len(m.Cells))
	changed := map[string]string{}
	for _, c := range m.Cells {
		runs = append(runs, judgedRun{c.Name, &c.Run})
		if c.Run.Baseline != nil {
			for _, d := range c.Run.Baseline.Changed {
				changed[d.Case] = "other than " + m.Cells[0].Name
			}
		}
	}
	return Page{
		Title: "Judges compared", Conclusion: m.Conclude(), Gates: m.cellTable(), Header: figureRows(m.header()), Cautions: m.cautions(),
		Notes: m.notes(), Tables: []Grid{m.differenceTable(), m.gateTable()},
		SystemPrompts: systemPrompts(runs), viewCases: func() []PageCase { return viewCases(runs, changed) },
	}
}

// JUnitMatrix writes the suites of all cells.
func JUnitMatrix(w io.Writer, m Matrix) error {
	var r junit.Report
	for _, c := range m.Cells {
		r.Suites = append(r.Suites, c.Run.junitSuites(visibleText(c.Name)+": ")...)
	}
	return junit.Write(w, r)
}

type cellOnFile struct {
	Name string          `json:"name"`
	Run  json.RawMessage `json:"run"`
}

type matrixOnFile struct {
	Format     string       `json:"format"`
	Conclusion Conclusion   `json:"conclusion"`
	Cells      []cellOnFile `json:"cells"`
}

// WriteMatrix writes a matrix file; run of each cell is a file of results.
func WriteMatrix(w io.Writer, m Matrix) error {
	out := matrixOnFile{Format: MatrixFormat, Conclusion: m.Conclude()}
	for _, c := range m.Cells {
		var b bytes.Buffer
		if err := WriteJSON(&b, c.Run); err != nil {
			return err
		}
		out.Cells = append(out.Cells, cellOnFile{c.Name, b.Bytes()})
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return fmt.Errorf("eval: write the matrix: %w", err)
	}
	return nil
}

// ReadMatrix reads a matrix file.
func ReadMatrix(r io.Reader) (Matrix, error) {
	var in matrixOnFile
	if err := json.NewDecoder(r).Decode(&in); err != nil {
		return Matrix{}, fmt.Errorf("eval: this is not the file of a matrix: %w", err)
	}
	if in.Format != MatrixFormat || len(in.Cells) < 2 {
		return Matrix{}, errors.New("eval: this is not the file of a matrix")
	}
	var m Matrix
	for _, c := range in.Cells {
		run, err := ReadMeasurement(bytes.NewReader(c.Run))
		if err != nil {
			return Matrix{}, fmt.Errorf("cell %s: %w", c.Name, err)
		}
		m.Cells = append(m.Cells, Cell{c.Name, run})
	}
	return m, nil
}
