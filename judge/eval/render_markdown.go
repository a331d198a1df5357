package eval

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes a report for a review or a wiki. What comes from cases, records and models is
// escaped: it makes no heading, link, image or HTML.
func (p Page) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", EscapeMarkdown(p.Title))
	if p.Conclusion.Says != "" {
		fmt.Fprintf(&b, "**%s**\n\n", EscapeMarkdown(p.Conclusion.Says))
	}
	b.WriteString(formatMarkdownTable([]string{"", ""}, p.Header))
	for _, c := range p.Cautions {
		fmt.Fprintf(&b, "\n> %s\n", EscapeMarkdown(c))
	}
	if len(p.Figures) > 0 {
		b.WriteString("\n## Figures\n\n" + formatMarkdownTable([]string{"", "", ""}[:len(p.Figures[0])], p.Figures))
	}
	b.WriteString(p.Gates.markdown())
	for _, l := range p.Listings {
		fmt.Fprintf(&b, "\n## %s\n\n", EscapeMarkdown(l.Title))
		for _, item := range l.Items {
			for i, line := range item {
				fmt.Fprintf(&b, "%s- %s\n", strings.Repeat("  ", min(i, 1)), EscapeMarkdown(line))
			}
		}
	}
	if p.CasesLeftOut > 0 {
		fmt.Fprintf(&b, "\nand %d more\n", p.CasesLeftOut)
	}
	for _, t := range p.Tables {
		b.WriteString(t.markdown())
	}
	if len(p.Notes) > 0 {
		b.WriteString("\n## Notes\n\n")
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "- %s\n", EscapeMarkdown(n))
	}
	return writeText(w, b.String())
}

// markdown is the table under a heading, "" without rows.
func (g Grid) markdown() string {
	if len(g.Rows) == 0 {
		return ""
	}
	return "\n## " + EscapeMarkdown(g.Title) + "\n\n" + formatMarkdownTable(g.Head, g.Rows)
}

func formatMarkdownTable(head []string, rows [][]string) string {
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	line := func(cells []string) {
		for _, cell := range cells {
			b.WriteString("| " + EscapeMarkdown(cell) + " ")
		}
		b.WriteString("|\n")
	}
	line(head)
	b.WriteString(strings.Repeat("| --- ", len(head)) + "|\n")
	for _, row := range rows {
		line(row[:len(head)])
	}
	return b.String()
}

var mdEscapes = strings.NewReplacer(
	"\\", "\\\\", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]", "|", "\\|",
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "#", "\\#", "~", "\\~", "!", "\\!", "$", "\\$", "@", "&#64;", "://", "&#58;//", "www.", "www&#46;",
)

// EscapeMarkdown makes one line of text that means only itself.
func EscapeMarkdown(s string) string { return mdEscapes.Replace(OneLine(s)) }
