package cli

import (
	"fmt"
)

// SizeRows returns the table rows for the size and digest of a content.
func SizeRows(bytes int, truncated bool, digest string) [][]string {
	size := fmt.Sprintf("%d bytes", bytes)
	if truncated {
		size += ", shortened"
	}
	return [][]string{{"size", size}, {"digest", digest}}
}

// FormatBool formats a bool as yes or no.
func FormatBool(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
