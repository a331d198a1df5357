package cli

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/term"
)

func TestTablesForPersons(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 10, 9, 30, 0, 0, time.UTC)
	const one, two, twin = "rev-019cd711-e480-7b88-8025-1d0f12b1c862", "rev-019cd711-e481-7b88-8025-1d0f12b1c862", "rev-019cd711-e480-7b88-8025-ffffffffffff"
	table := func(first, second string) [][]string {
		return [][]string{{"ID", "WAITS SINCE", "EXPIRES", "TIME"}, {first, "2026-03-10T09:29:18Z", "never", "2026-03-10T09:29:18Z"}, {second, "2026-03-08T09:30:00Z", "2026-03-11T09:00:00Z", ""}}
	}
	rows := shortenForPerson(table(one, two), now)
	if !slices.Equal(rows[1], []string{"rev-019cd711-e480", "42s ago", "never", "2026-03-10T09:29:18Z"}) || !slices.Equal(rows[2], []string{"rev-019cd711-e481", "2 days ago", "in 23h", ""}) {
		t.Errorf("a person reads %q", rows[1:])
	}
	if rows := shortenForPerson(table(one, twin), now); rows[1][0] != one || rows[2][0] != twin {
		t.Errorf("ids of one millisecond are cut: %q", rows)
	}
	if rows := shortenForPerson(table("order-17", one), now); rows[1][0] != "order-17" {
		t.Errorf("an id that is not gavel's is cut: %q", rows)
	}
	var b bytes.Buffer // not a terminal
	if rows := ShortenForTerminal(term.New(&b), table(one, two)); rows[1][0] != one || rows[1][1] != "2026-03-10T09:29:18Z" {
		t.Errorf("a pipe gets %q", rows[1])
	}
	for d, want := range map[time.Duration]string{0: "in 0s", -time.Second: "1s ago", 90 * time.Second: "in 1m", 25*time.Hour + time.Minute: "in 25h", -72 * time.Hour: "3 days ago"} {
		if got := FormatDistance(now.Add(d), now); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
