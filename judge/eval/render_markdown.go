package eval

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes a report for a review or a wiki. What comes from cases and models is
// escaped: it makes no heading, link, image or HTML.
func Markdown(w io.Writer, m Measurement) error {
	var b strings.Builder
	b.WriteString("# How good the judge is\n\n")
	mdTable(&b, []string{"", ""}, twoColumns(m.header()))
	for _, c := range m.cautions() {
		fmt.Fprintf(&b, "\n> %s\n", mdText(c))
	}
	b.WriteString("\n## Figures\n\n")
	var rows [][]string
	for _, f := range m.figures() {
		rows = append(rows, []string{f.Name, f.Value, f.Note})
	}
	mdTable(&b, []string{"figure", "value", "bounds"}, rows)
	if m.Baseline != nil {
		fmt.Fprintf(&b, "\nAgainst the baseline: %s\n", mdText(m.Baseline.Says))
	}
	for _, t := range m.tables() {
		fmt.Fprintf(&b, "\n## %s\n\n", mdText(t.Title))
		mdTable(&b, t.Head, t.Rows)
	}
	if len(m.Report.Worst) > 0 {
		b.WriteString("\n## Worst cases\n\n")
		for _, c := range m.Report.Worst {
			fmt.Fprintf(&b, "- **%s**: %s\n", mdText(c.Case), mdText(c.describe()))
			if c.Reasoning != "" {
				fmt.Fprintf(&b, "  \n  %s\n", mdText(c.Reasoning))
			}
		}
	}
	if len(m.Report.Notes) > 0 {
		b.WriteString("\n## Notes\n\n")
		for _, n := range m.Report.Notes {
			fmt.Fprintf(&b, "- %s\n", mdText(n))
		}
	}
	return writeText(w, b.String())
}

func twoColumns(all []figure) [][]string {
	var rows [][]string
	for _, f := range all {
		rows = append(rows, []string{f.Name, f.Value})
	}
	return rows
}

func mdTable(b *strings.Builder, head []string, rows [][]string) {
	line := func(cells []string) {
		for _, cell := range cells {
			b.WriteString("| " + mdText(cell) + " ")
		}
		b.WriteString("|\n")
	}
	line(head)
	b.WriteString(strings.Repeat("| --- ", len(head)) + "|\n")
	for _, row := range rows {
		line(row)
	}
}

var mdEscapes = strings.NewReplacer(
	"\\", "\\\\", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]", "|", "\\|",
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "#", "\\#", "~", "\\~", "!", "\\!", "$", "\\$", "@", "&#64;", "://", "&#58;//", "www.", "www&#46;",
)

func mdText(s string) string { return mdEscapes.Replace(oneLine(s)) }
