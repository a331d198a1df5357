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
	columnGap   = 2  // spaces between columns
	leastColumn = 12 // no word is broken narrower
	longestWord = 40 // and only longer ones where nothing helps; an id has 40
)

// Table prints rows in columns; the first row is the heading. Cells are cleaned. On a
// terminal that is too narrow the widest columns are wrapped between words; where that is not
// enough, the spare columns are left out, the first first, and then words are broken. A file or a
// pipe gets every row whole, on one line.
func (t *Terminal) Table(rows [][]string, spare ...string) {
	rows, left := omitColumns(rows, t.width(), spare)
	_, _ = io.WriteString(t.w, layOut(rows, t.width(), func(cell string) string { return string(t.Outcome(cell)) }))
	if len(left) > 0 {
		t.Printf("%s\n", t.Dim("too narrow for "+strings.Join(left, ", ")+"; --json has all"))
	}
}

// Align is the same table as text, each row on one line whoever looks: for reports that
// are files.
func Align(rows [][]string) string { return layOut(rows, 0, Clean) }

// outcomeColumns are the headings of columns in which outcomes stand.
var outcomeColumns = []string{"OUTCOME", "SAYS", "STATUS"}

// omitColumns leaves spare columns out until the rest fits into width without breaking a word, and
// returns their headings. A width of 0 has room for all.
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

// measureColumns returns the width of the longest cell and of the longest word of each column.
func measureColumns(rows [][]string) (widths, words []int) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths, words = append(widths, 0), append(words, 0)
			}
			cell = Clean(cell)
			widths[i] = max(widths[i], text.StringWidth(cell))
			for word := range strings.FieldsSeq(cell) {
				words[i] = max(words[i], min(text.StringWidth(word), longestWord))
			}
		}
	}
	return widths, words
}

// layOut wraps columns to fit into width, unless that is 0, and styles outcomes.
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

// wrapColumns narrows columns until all fit into width: between words, and where that is not
// enough, through words; but not in vain, for an id in two parts is hard to copy.
func wrapColumns(widths, words []int, width int) (configs []table.ColumnConfig) {
	limits, fit := narrowColumns(widths, words, width)
	if !fit {
		least := make([]int, len(words))
		for i, w := range words {
			least[i] = min(w, leastColumn)
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

// narrowColumns takes from the widest column that is above its least width, until all fit or none is.
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

// Fit cuts a line that is longer than width.
func Fit(line string, width int) string { return text.Snip(line, width, "...") }

// Wrap breaks a line between words where it is longer than width.
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
