package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/term"
)

// ParseMoment parses a time: a duration or days before now, a date (midnight UTC), or RFC 3339.
func ParseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, term.UsageErrorf("write it as 24h, 7d, 2026-03-01 or 2026-03-01T09:30:00Z", "%s %q is not a time", flag, text)
}
