package eval

import (
	"fmt"
	"io"
	"strings"

	"github.com/gavel-mcp/gavel/judge"
)

// Align formats rows in columns, one line each. The calling program supplies it. Cells must not have line breaks.
type Align func(rows [][]string) string

// Text writes a report for a terminal; its last line is the conclusion.
func (p Page) Text(w io.Writer, align Align) error {
	var b strings.Builder
	if len(p.Header) > 0 {
		b.WriteString(align(p.Header))
	}
	for _, c := range p.Cautions {
		fmt.Fprintf(&b, "\n! %s\n", c)
	}
	if len(p.Figures) > 0 {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		b.WriteString(align(p.Figures))
	}
	b.WriteString(p.Gates.Text(align))
	for _, l := range p.Listings {
		fmt.Fprintf(&b, "\n%s\n", l.Title)
		for _, item := range l.Items {
			for i, line := range item {
				fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", min(i+1, 2)), OneLine(line))
			}
		}
	}
	for _, t := range p.Tables {
		b.WriteString(t.Text(align))
	}
	if len(p.Notes) > 0 {
		b.WriteString("\nNotes\n")
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "  - %s\n", OneLine(n))
	}
	if p.Conclusion.Says != "" {
		fmt.Fprintf(&b, "\n%s\n", p.Conclusion.Says)
	}
	return writeText(w, b.String())
}

func writeText(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("eval: write the report: %w", err)
	}
	return nil
}

func figureRows(all []figure) [][]string {
	rows := make([][]string, len(all))
	for i, f := range all {
		rows[i] = []string{f.Name, OneLine(f.Value), f.Note}
	}
	return rows
}

// Text returns the title with the table below it, "" if the table has no rows.
func (g Grid) Text(align Align) string {
	if len(g.Rows) == 0 {
		return ""
	}
	var rows [][]string
	for _, row := range append([][]string{g.Head}, g.Rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = OneLine(cell)
		}
		cells[0] = "  " + cells[0]
		rows = append(rows, cells)
	}
	return "\n" + g.Title + "\n" + align(rows)
}

// words describes the case and the judge's answer.
func (w WorstCase) words() []string {
	all := []string{w.Case + ": " + w.describe()}
	if w.Reasoning != "" {
		all = append(all, w.Reasoning)
	}
	return all
}

// describe describes the judge's answer without its reasoning.
func (w WorstCase) describe() string {
	text := fmt.Sprintf("%s, right is %s (confidence %s", w.Got, w.Expected, judge.FormatConfidence(w.Confidence))
	if w.DecidedBy != "" {
		text += ", decided by " + string(w.DecidedBy)
	}
	if w.Code != "" {
		text += ", " + OneLine(w.Code)
	}
	if w.Unreadable {
		text += ", the answer could not be read"
	}
	return text + ")"
}

// OneLine puts foreign text on one line, and removes characters that hide or reorder text. The result cannot add
// lines or columns.
func OneLine(s string) string { return VisibleText(strings.Join(strings.Fields(s), " ")) }
