package eval

import (
	"fmt"
	"io"
	"strings"
)

// TextSideBySide writes runs over the same cases for a terminal: their figures beside each other,
// and what the Baseline of each says of the difference, case by case. They are named by their judge.
func TextSideBySide(w io.Writer, runs []Measurement, align Align) error {
	var b strings.Builder
	table := [][]string{{""}}
	for _, f := range runs[0].figures() {
		table = append(table, []string{f.Name})
	}
	for _, m := range runs {
		table[0] = append(table[0], OneLine(m.About.Judge))
		values := map[string]string{}
		for _, f := range m.figures() {
			values[f.Name] = joinNote(f)
		}
		for i := range table[1:] {
			table[i+1] = append(table[i+1], OneLine(orMissing(values[table[i+1][0]])))
		}
	}
	b.WriteString(align(table))
	for _, c := range runs[0].cautions() {
		fmt.Fprintf(&b, "\n! %s\n", c)
	}
	for _, m := range runs {
		if m.Baseline == nil {
			continue
		}
		fmt.Fprintf(&b, "\n%s, against %s\n\n", OneLine(m.About.Judge), OneLine(runs[0].About.Judge))
		if err := TextComparison(&b, *m.Baseline, align); err != nil {
			return err
		}
	}
	fmt.Fprintf(&b, "\n%s\n", runs[len(runs)-1].Conclude().Says)
	return writeText(w, b.String())
}

// joinNote is a figure in one cell.
func joinNote(f figure) string {
	if f.Note == "" || f.Value == missing {
		return f.Value
	}
	return f.Value + "; " + f.Note
}
