package eval

import (
	_ "embed"
	"io"
	"strings"
	"sync"
	"text/template"
)

//go:embed report.md.tmpl
var markdownText string

var markdownTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(template.FuncMap{
		"md": EscapeMarkdown, "table": mdTable, "list": func(cells ...string) []string { return cells },
		"rows": func(all []figure, columns int) (rows [][]string) {
			for _, f := range all {
				rows = append(rows, []string{f.Name, f.Value, f.Note}[:columns])
			}
			return rows
		},
	}).Parse(markdownText))
})

// Markdown writes a report for a review or a wiki. What comes from cases and models is
// escaped: it makes no heading, link, image or HTML.
func Markdown(w io.Writer, m Measurement) error {
	var b strings.Builder
	if err := markdownTemplate().Execute(&b, m.page()); err != nil {
		return err
	}
	return writeText(w, b.String())
}

// Markdown is the table under a heading.
func (g Grid) Markdown() string {
	return "\n## " + EscapeMarkdown(g.Title) + "\n\n" + mdTable(g.Head, g.Rows)
}

func mdTable(head []string, rows [][]string) string {
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
		line(row)
	}
	return b.String()
}

var mdEscapes = strings.NewReplacer(
	"\\", "\\\\", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]", "|", "\\|",
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "#", "\\#", "~", "\\~", "!", "\\!", "$", "\\$", "@", "&#64;", "://", "&#58;//", "www.", "www&#46;",
)

// EscapeMarkdown makes one line of text that means only itself.
func EscapeMarkdown(s string) string { return mdEscapes.Replace(OneLine(s)) }
