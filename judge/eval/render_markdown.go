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
		fmt.Fprintf(&b, "\n> %s\n", EscapeMarkdown(c))
	}
	b.WriteString("\n## Figures\n\n")
	var rows [][]string
	for _, f := range m.figures() {
		rows = append(rows, []string{f.Name, f.Value, f.Note})
	}
	mdTable(&b, []string{"figure", "value", "bounds"}, rows)
	if m.Baseline != nil {
		fmt.Fprintf(&b, "\nAgainst the baseline: %s\n", EscapeMarkdown(m.Baseline.Says))
	}
	for _, t := range m.tables() {
		b.WriteString(t.Markdown())
	}
	if len(m.Report.Worst) > 0 {
		b.WriteString("\n## Worst cases\n\n")
		for _, c := range m.Report.Worst {
			fmt.Fprintf(&b, "- **%s**: %s\n", EscapeMarkdown(c.Case), EscapeMarkdown(c.describe()))
			if c.Reasoning != "" {
				fmt.Fprintf(&b, "  \n  %s\n", EscapeMarkdown(c.Reasoning))
			}
		}
	}
	if len(m.Report.Notes) > 0 {
		b.WriteString("\n## Notes\n\n")
		for _, n := range m.Report.Notes {
			fmt.Fprintf(&b, "- %s\n", EscapeMarkdown(n))
		}
	}
	return writeText(w, b.String())
}

// Markdown is the table under a heading.
func (g Grid) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n", EscapeMarkdown(g.Title))
	mdTable(&b, g.Head, g.Rows)
	return b.String()
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
			b.WriteString("| " + EscapeMarkdown(cell) + " ")
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

// EscapeMarkdown makes one line of text that means only itself.
func EscapeMarkdown(s string) string { return mdEscapes.Replace(OneLine(s)) }
