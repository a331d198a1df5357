package term

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const (
	columnGap = 2  // spaces between columns
	minColumn = 12 // minimum width to which words are broken
	maxWord   = 40 // longer words may always be broken; an id has 40 characters
)

// Table prints rows in columns; the first row is the heading. Cells are cleaned. On a narrow terminal, the widest
// columns are wrapped between words. If that is not enough, spare columns are omitted in the given order, and finally
// words are broken. In a file or a pipe, every row is on one line.
func (t *Terminal) Table(rows [][]string, spare ...string) {
	rows, left := omitColumns(rows, t.width(), spare)
	_, _ = io.WriteString(t.w, layOut(rows, t.width(), func(cell string) string { return string(t.Outcome(cell)) }))
	if len(left) > 0 {
		t.Printf("%s\n", t.Dim("too narrow for "+strings.Join(left, ", ")+"; --json has all"))
	}
}

// Align returns rows as a table in text form, with each row on one line, for reports in files.
func Align(rows [][]string) string { return layOut(rows, 0, Clean) }

// outcomeColumns are the headings of columns that hold outcomes.
var outcomeColumns = []string{"OUTCOME", "SAYS", "STATUS"}

// omitColumns omits spare columns until the others fit into width without breaking words, and returns the omitted
// headings. A width of 0 is unlimited.
func omitColumns(rows [][]string, width int, spare []string) (_ [][]string, left []string) {
	for _, head := range spare {
		widths, words := measureColumns(rows)
		if _, fit := narrowColumns(widths, words, width); fit || width == 0 {
			break
		}
		if i := slices.Index(rows[0], head); i >= 0 {
			left, rows = append(left, head), slices.Clone(rows)
			for n, row := range rows {
				rows[n] = slices.Delete(slices.Clone(row), i, i+1)
			}
		}
	}
	return rows, left
}

// measureColumns returns the width of each column's longest cell and longest word.
func measureColumns(rows [][]string) (widths, words []int) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths, words = append(widths, 0), append(words, 0)
			}
			cell = Clean(cell)
			widths[i] = max(widths[i], text.StringWidth(cell))
			for word := range strings.FieldsSeq(cell) {
				words[i] = max(words[i], min(text.StringWidth(word), maxWord))
			}
		}
	}
	return widths, words
}

// layOut wraps columns to fit into width, unless it is 0, and styles outcomes.
func layOut(rows [][]string, width int, style func(string) string) string {
	w := table.NewWriter()
	w.SuppressTrailingSpaces()
	plain := table.StyleDefault
	plain.Box.PaddingLeft, plain.Box.PaddingRight = "", strings.Repeat(" ", columnGap)
	plain.Options = table.OptionsNoBordersAndSeparators
	w.SetStyle(plain)
	for number, row := range rows {
		cells := make(table.Row, len(row))
		for i, cell := range row {
			cell = Clean(cell)
			if number > 0 && i < len(rows[0]) && slices.Contains(outcomeColumns, rows[0][i]) {
				cell = style(cell)
			}
			cells[i] = cell
		}
		w.AppendRow(cells)
	}
	if width > 0 {
		widths, words := measureColumns(rows)
		w.SetColumnConfigs(wrapColumns(widths, words, width))
	}
	return w.Render() + "\n"
}

// wrapColumns narrows columns until they fit into width: first between words, then by breaking words. It breaks words
// only if that makes the table fit, because a broken id is hard to copy.
func wrapColumns(widths, words []int, width int) (configs []table.ColumnConfig) {
	limits, fit := narrowColumns(widths, words, width)
	if !fit {
		least := make([]int, len(words))
		for i, w := range words {
			least[i] = min(w, minColumn)
		}
		if broken, fits := narrowColumns(limits, least, width); fits {
			limits = broken
		}
	}
	for i, limit := range limits {
		if limit < widths[i] {
			configs = append(configs, table.ColumnConfig{Number: i + 1, WidthMax: limit, WidthMaxEnforcer: text.WrapSoft})
		}
	}
	return configs
}

// narrowColumns repeatedly narrows the widest column that exceeds its minimum, until all fit or none can be narrowed.
func narrowColumns(widths, least []int, width int) (limits []int, fit bool) {
	limits = slices.Clone(widths)
	total := columnGap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; total > width; total-- {
		widest := -1
		for i, w := range limits {
			if w > least[i] && (widest < 0 || w > limits[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return limits, false
		}
		limits[widest]--
	}
	return limits, true
}

// Fit cuts a line to width.
func Fit(line string, width int) string { return text.Snip(line, width, "...") }

// Wrap breaks a line between words to fit into width.
func Wrap(line string, width int) string { return text.WrapSoft(line, width) }

// Count returns a number with its noun: "1 history", "2 histories".
func Count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.HasSuffix(stem, "a") {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	if strings.HasSuffix(noun, "s") {
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
