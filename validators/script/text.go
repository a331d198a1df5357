package script

import (
	"strings"
	"unicode/utf8"
)

// Limits on the text that a script may return, in UTF-16 units or list entries. Longer strings are
// truncated; further entries are dropped.
const (
	MaxReason  = 2048
	MaxNote    = 300 // one violation or suggestion, and an error quoted in a Detail
	MaxNotes   = 20
	maxMessage = 600 // a whole Detail, and the Message of a Violation
	// maxViolations is the maximum for a schema, including its "and N more".
	maxViolations = 21
)

// Clean makes an untrusted string safe to store and show as data: valid UTF-8 of at most limit UTF-16
// units. It removes characters that could rewrite a terminal, a log or the reading order (C0, C1,
// bidirectional and invisible formatting). Newlines and tabs become spaces.
func Clean(s string, limit int) string {
	if isClean(s, limit) {
		return s
	}
	var b strings.Builder
	units := 0
	for _, r := range s { // invalid bytes arrive as U+FFFD
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			r = ' '
		case isHidden(r):
			continue
		}
		n := 1
		if r > 0xFFFF {
			n = 2
		}
		if units+n > limit {
			break
		}
		units += n
		b.WriteRune(r)
	}
	return b.String()
}

// isClean reports whether Clean would return s unchanged, which is nearly always true.
func isClean(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7F {
			return isCleanTail(s[i:])
		}
	}
	return true
}

func isCleanTail(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if isHidden(r) {
			return false
		}
	}
	return true
}

// isHidden reports whether a character is invisible but affects how text is shown or processed.
func isHidden(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7F && r <= 0x9F: // C0, DEL, C1
		return true
	case r == 0x061C, r >= 0x200B && r <= 0x200F, r >= 0x202A && r <= 0x202E: // marks, embeddings
		return true
	case r >= 0x2060 && r <= 0x206F, r == 0x2028, r == 0x2029, r == 0xFEFF: // isolates, separators
		return true
	case r >= 0xFFF9 && r <= 0xFFFB, r >= 0xE0000 && r <= 0xE007F: // annotations, tags
		return true
	}
	return false
}
