package workflow

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// showHidden writes out characters that hide, reorder or pile up text, and bytes that are not UTF-8, so that a reader
// sees them.
func showHidden(s string) string {
	var b strings.Builder
	piled := 0
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, "⟨0x%02X⟩", s[i])
			continue
		case unicode.Is(unicode.M, r):
			piled++
		default:
			piled = 0
		}
		if piled > 2 || r != ' ' && !unicode.IsPrint(r) {
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cutText cuts a text to n characters.
func cutText(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i] + "…"
		}
		n--
	}
	return s
}

// measureText estimates the width of a text in a sans-serif font of a size. It is a little wider than most fonts.
func measureText(s string, size float64) float64 {
	sum := 0.0
	for _, r := range s {
		sum += measureRune(r)
	}
	return sum * size
}

// measureRune returns the width of a character, where 1 is the size of the font.
func measureRune(r rune) float64 {
	switch {
	case strings.ContainsRune("iIjl.,:;'|!", r):
		return 0.34
	case strings.ContainsRune(`ftr()[]{}/\- "`, r):
		return 0.42
	case strings.ContainsRune("mwMW@%…", r):
		return 0.98
	case r < 0x80 && unicode.IsUpper(r):
		return 0.74
	case r < 0x80:
		return 0.63
	case unicode.Is(unicode.M, r):
		return 0
	case r < 0x250 || unicode.In(r, unicode.Greek, unicode.Cyrillic):
		return 0.75
	}
	return 1.1
}

// wrapText breaks a text into at most n lines of a width, after spaces, punctuation and the parts of a name; it cuts
// the last one. There is at least one line. Hidden characters are made visible.
func wrapText(s string, width, size float64, n int) (lines []string) {
	rest := []rune(showHidden(cutText(strings.Join(strings.Fields(s), " "), 256)))
	for len(rest) > 0 {
		last := len(lines) == n-1
		sum, end, soft := 0.0, 0, 0
		for end < len(rest) {
			sum += measureRune(rest[end]) * size
			if sum > width {
				break
			}
			end++
			if end < len(rest) && (strings.ContainsRune(" -_./:,", rest[end-1]) || unicode.IsLower(rest[end-1]) && unicode.IsUpper(rest[end])) {
				soft = end
			}
		}
		if end == len(rest) {
			return append(lines, string(rest))
		}
		if last {
			for end > 0 && measureText(string(rest[:end])+"…", size) > width {
				end--
			}
			return append(lines, strings.TrimSpace(string(rest[:end]))+"…")
		}
		if soft > end/3 {
			end = soft
		}
		end = max(end, 1)
		lines = append(lines, strings.TrimSpace(string(rest[:end])))
		rest = rest[end:]
	}
	if len(lines) == 0 {
		lines = append(lines, "")
	}
	return lines
}
