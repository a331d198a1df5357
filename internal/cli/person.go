package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/term"
)

// ShortenForTerminal prepares a table for a terminal: ids are shortened if they stay distinct, and times are relative.
// Files and pipes get the original values.
func ShortenForTerminal(out *term.Terminal, rows [][]string) [][]string {
	if !out.IsTerminal() {
		return rows
	}
	return shortenForPerson(rows, time.Now())
}

// Columns that contain ids, and columns with times that are shown as relative.
var (
	idColumns   = []string{"ID", "INSTANCE", "RUN"}
	timeColumns = []string{"WHEN", "WAITS SINCE", "EXPIRES", "UPDATED", "LAST USED", "STARTED", "NEXT", "LAST"}
)

func shortenForPerson(rows [][]string, now time.Time) [][]string {
	if len(rows) == 0 {
		return rows
	}
	shown := make([][]string, len(rows))
	for i, row := range rows {
		shown[i] = slices.Clone(row)
	}
	for column, head := range rows[0] {
		cells := shown[1:]
		switch {
		case slices.Contains(timeColumns, head):
			for _, row := range cells {
				if at, err := time.Parse(time.RFC3339, row[column]); err == nil {
					row[column] = FormatDistance(at, now)
				}
			}
		case slices.Contains(idColumns, head) && areDistinct(cells, column):
			for _, row := range cells {
				row[column] = ShortenID(row[column])
			}
		}
	}
	return shown
}

// areDistinct reports whether different ids in a column remain different when shortened.
func areDistinct(rows [][]string, column int) bool {
	whole := map[string]string{}
	for _, row := range rows {
		short := ShortenID(row[column])
		if other, taken := whole[short]; taken && other != row[column] {
			return false
		}
		whole[short] = row[column]
	}
	return true
}

// ShortenID cuts an id after the millisecond of its timestamp. Commands accept the short form as an id.
func ShortenID(id string) string {
	kind, _, _ := strings.Cut(id, "-") // such as wf, rev
	if prefix := kind + "-"; len(kind) <= 3 && IsWholeID(id, prefix) {
		return id[:len(prefix)+len("019cd711-e480")]
	}
	return id
}

// FormatDistance formats a time relative to now.
func FormatDistance(at, now time.Time) string {
	d := at.Sub(now)
	if d >= 0 {
		return "in " + term.Roughly(d)
	}
	return term.Roughly(-d) + " ago"
}
