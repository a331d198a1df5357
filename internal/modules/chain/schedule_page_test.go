package chain

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// clockChanges are the rows of the table in docs/chains.md: the changes of the clock, and expressions that
// are affected.
var clockChanges = []struct {
	zone, day, change string
	expressions       []string
}{
	{"Europe/Berlin", "2026-03-29", "from 02:00 to 03:00", []string{"30 2 * * *", "*/15 * * * *"}},
	{"Europe/Berlin", "2026-10-25", "from 03:00 to 02:00", []string{"30 2 * * *", "*/15 * * * *"}},
	{"America/New_York", "2026-03-08", "from 02:00 to 03:00", []string{"30 2 * * *", "0 */2 * * *"}},
	{"America/New_York", "2026-11-01", "from 02:00 to 01:00", []string{"30 1 * * *", "0 * * * *"}},
	{"Australia/Lord_Howe", "2026-04-05", "from 02:00 to 01:30", []string{"45 1 * * *", "*/30 * * * *"}},
	{"Australia/Lord_Howe", "2026-10-04", "from 02:00 to 02:30", []string{"15 2 * * *", "*/30 * * * *"}},
}

// TestPageShowsClockChanges compares the table in docs/chains.md with the ticks.
func TestPageShowsClockChanges(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/chains.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, c := range clockChanges {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		day, err := time.ParseInLocation(time.DateOnly, c.day, zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, expression := range c.expressions {
			s := parseSchedule(t, fmt.Sprintf(`{type: cron, expression: %q, timezone: %s}`, expression, c.zone))
			var ticks []string
			for _, at := range listTicks(s, day, day.AddDate(0, 0, 1)) {
				if tick := time.Unix(at, 0).In(zone); tick.Hour() >= 1 && tick.Hour() < 4 {
					ticks = append(ticks, tick.Format("15:04-07:00"))
				}
			}
			row := fmt.Sprintf("| %s | %s | %s | `%s` | %s |\n", c.zone, c.day, c.change, expression, strings.Join(ticks, ", "))
			if strings.Contains(string(page), row) {
				shown++
			} else {
				t.Errorf("the page lacks this row:\n%s", row)
			}
		}
	}
	if rows := strings.Count(string(page), " | from 0"); rows != shown {
		t.Errorf("the page has %d rows, and %d of them are true", rows, shown)
	}
}
