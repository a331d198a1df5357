package cli

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestMoments(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                          {},
		"24h":                       now.Add(-24 * time.Hour),
		"1h30m":                     now.Add(-90 * time.Minute),
		"0s":                        now,
		"2d":                        time.Date(2026, 2, 27, 12, 0, 0, 0, time.UTC),
		"2026-01-02":                time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		"2026-01-02T03:04:05Z":      time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		"2026-01-02T03:04:05+01:00": time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC),
	} {
		if got, err := ParseMoment("--since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "-1h", "-2d", "d", "2026-13-01", "99999999999999999999d", "1 h"} {
		if _, err := ParseMoment("--since", text, now); err == nil || !strings.Contains(err.Error(), "--since") {
			t.Errorf("%q: %v", text, err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		_, _ = ParseMoment("--since", rapid.String().Draw(r, "text"), now) // never panics
	})
}
