package term

import (
	"cmp"
	"strings"
	"time"
)

// ShortDuration formats a duration with at most two decimals of a second.
func ShortDuration(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

// Roughly formats a duration in its largest unit, with the next smaller unit if the number is small.
func Roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	case d < 2*day:
		return strings.TrimSuffix(d.Truncate(time.Hour).String(), "0m0s")
	default:
		return Count(int64(d/day), "day")
	}
}

// OrNone returns the text of a table cell, "-" if it is empty.
func OrNone(s string) string { return cmp.Or(s, "-") }

// Truncate shortens a text to at most n characters.
func Truncate(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return strings.TrimRight(string(runes[:n-3]), " ,;.") + "..."
}
