package validators

import (
	"unicode"

	"github.com/gavel-mcp/gavel/validators/document"
)

// isBlank reports whether a JSON value is a string without a visible character. Any other
// value is not blank.
func isBlank(value document.JSON) bool {
	if value.Kind() != document.String {
		return false
	}
	if c := value.Raw()[1]; c > ' ' && c < 0x7f && c != '\\' && c != '"' {
		return false // nearly always
	}
	for _, r := range value.Text() {
		if isSeen(r) {
			return false
		}
	}
	return true
}

// isSeen reports whether a character is drawn. Not drawn are white space, controls and
// formats (Cc, Cf: zero-width spaces and joiners, U+FEFF, directions, tags), what Unicode
// lets programs ignore (Default_Ignorable_Code_Point: Hangul fillers such as U+3164,
// variation selectors, U+034F), noncharacters, and characters with an empty glyph. A mark
// is drawn only on a character that is, so marks alone are nothing.
func isSeen(r rune) bool {
	switch {
	case r == '\u2800', r == '\U0001D159': // braille without a dot, a note without a head
		return false
	case unicode.IsSpace(r), unicode.IsControl(r), unicode.IsMark(r):
		return false
	}
	return !unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Noncharacter_Code_Point)
}
