package judge

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// cleanText makes somebody's words fit to be kept and shown: one line of valid UTF-8 of
// at most limit bytes, without control characters and without those that hide or
// reorder text.
func cleanText(text string, limit int, secrets ...string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return ' '
		case r == zeroWidthJoiner || r == zeroWidthNonJoiner:
			return r // scripts need them
		case unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.Join(strings.Fields(text), " ")
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, ellipsis)
		}
	}
	return truncateText(text, limit)
}

const (
	zeroWidthNonJoiner = '\u200C'
	zeroWidthJoiner    = '\u200D'
	ellipsis           = "…"
)

// truncateText cuts a text to at most limit bytes, between characters.
func truncateText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimSpace(text[:max(end, 0)]) + ellipsis
}

// clean is clean without what only the question may hold.
func (q question) clean(text string, limit int) string {
	return cleanText(text, limit, q.marker, q.nonce)
}
