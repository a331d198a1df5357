package main

import (
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/term"
)

// forPerson is a table as a person reads it: ids as short as they can be told apart, and how
// long ago or how soon. Files and pipes get ids and times whole.
func forPerson(out *term.Terminal, rows [][]string) [][]string {
	if !out.IsTerminal() {
		return rows
	}
	return shortenForPerson(rows, time.Now())
}

// The columns that hold ids, and those of times of which it matters how far away they are.
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
					row[column] = fromNow(at, now)
				}
			}
		case slices.Contains(idColumns, head) && areDistinct(cells, column):
			for _, row := range cells {
				row[column] = shortenID(row[column])
			}
		}
	}
	return shown
}

// areDistinct reports whether different ids in a column stay different when they are cut.
func areDistinct(rows [][]string, column int) bool {
	whole := map[string]string{}
	for _, row := range rows {
		short := shortenID(row[column])
		if other, taken := whole[short]; taken && other != row[column] {
			return false
		}
		whole[short] = row[column]
	}
	return true
}

// shortenID leaves of an id what begins it up to the millisecond in it. That is taken wherever
// an id is.
func shortenID(id string) string {
	kind, _, _ := strings.Cut(id, "-") // such as wf, rev
	if prefix := kind + "-"; len(kind) <= 3 && isWhole(id, prefix) {
		return id[:len(prefix)+len("019cd711-e480")]
	}
	return id
}

// fromNow says how long ago a time is, or how soon it comes.
func fromNow(at, now time.Time) string {
	d := at.Sub(now)
	if d >= 0 {
		return "in " + formatRoughly(d)
	}
	return formatRoughly(-d) + " ago"
}

var formatRoughly = term.Roughly
