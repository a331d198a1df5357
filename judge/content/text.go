package content

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizeText prepares a text for the rules: compatibility forms composed, lower
// case, nothing invisible, look-alikes of Latin letters replaced in words of mixed
// scripts.
func normalizeText(s string) string {
	s = norm.NFKC.String(s)
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		if isInvisible(r) {
			continue
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return replaceLookalikes(b.String())
}

func isInvisible(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector) || unicode.IsControl(r) && !unicode.IsSpace(r) ||
		r == '\u115f' || r == '\u1160' || r == '\u3164' || r == '\u034f'
}

// lookalikes are letters of other scripts that are drawn like Latin ones (Unicode
// TR39, the common part).
var lookalikes = map[rune]rune{
	'а': 'a', 'е': 'e', 'о': 'o', 'р': 'p', 'с': 'c', 'у': 'y', 'х': 'x', 'і': 'i', 'ј': 'j', 'ѕ': 's', 'ԁ': 'd', 'һ': 'h', 'ո': 'n', 'ц': 'u',
	'к': 'k', 'м': 'm', 'т': 't', 'в': 'b', 'н': 'h', 'г': 'r', 'п': 'n', 'ԛ': 'q', 'ѡ': 'w', 'ɡ': 'g', 'ι': 'i', 'ο': 'o', 'α': 'a', 'ρ': 'p',
	'ν': 'v', 'τ': 't', 'υ': 'u', 'κ': 'k', 'η': 'n', 'ε': 'e', 'χ': 'x', 'γ': 'y', 'ı': 'i', 'ӏ': 'l', 'ⅼ': 'l', 'ѵ': 'v', 'ɑ': 'a',
}

// replaceLookalikes replaces them in words that also have Latin letters. A word of one
// other script stays: that is a language.
func replaceLookalikes(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return lookalikes[r] != 0 }) {
		return s
	}
	var b strings.Builder
	for word := range splitWords(s) {
		latin := strings.ContainsFunc(word, func(r rune) bool { return r >= 'a' && r <= 'z' })
		for _, r := range word {
			if like := lookalikes[r]; latin && like != 0 {
				r = like
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

// splitWords yields runs of letters and runs of everything else, in order.
func splitWords(s string) func(func(string) bool) {
	return func(yield func(string) bool) {
		begin, in := 0, false
		for i, r := range s {
			if letter := unicode.IsLetter(r); letter != in {
				if i > begin && !yield(s[begin:i]) {
					return
				}
				begin, in = i, letter
			}
		}
		if begin < len(s) {
			yield(s[begin:])
		}
	}
}

// The shapes of encoded text.
var (
	base64Run   = compileOnce(`[A-Za-z0-9+/_-]{20,}={0,2}`)
	hexRun      = compileOnce(`(?:[0-9a-fA-F]{2}[ :]?){12,}`)
	escapedRun  = compileOnce(`(?:\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}){6,}`)
	percentRun  = compileOnce(`(?:%[0-9a-fA-F]{2}[A-Za-z0-9._~-]*){4,}`)
	entityRun   = compileOnce(`(?:&#x?[0-9a-fA-F]{1,6};[A-Za-z ]?){4,}`)
	spacedRun   = compileOnce(`(?:\pL[ ._*-]{1,2}){5,}\pL`)
	binaryRun   = compileOnce(`(?:[01]{8}\s?){8,}`)
	leetLetters = strings.NewReplacer("0", "o", "1", "i", "3", "e", "4", "a", "5", "s", "7", "t", "@", "a", "$", "s", "!", "i", "8", "b", "9", "g")
)

// decodeHidden decodes texts that an encoding hides in s. Each decoder scans the text
// once; results that are not text are dropped.
func decodeHidden(s string) []string {
	var out []string
	keep := func(candidate string) {
		if isReadable(candidate) {
			out = append(out, normalizeText(candidate))
		}
	}
	for _, run := range base64Run().FindAllString(s, 8) {
		run = strings.TrimRight(run, "=")
		if len(run)%4 == 1 {
			run = run[:len(run)-1]
		}
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if raw, err := enc.DecodeString(run); err == nil {
				keep(string(raw))
				break
			}
		}
	}
	for _, run := range hexRun().FindAllString(s, 8) {
		if raw, err := hex.DecodeString(strings.NewReplacer(" ", "", ":", "").Replace(run)); err == nil {
			keep(string(raw))
		}
	}
	for _, run := range binaryRun().FindAllString(s, 8) {
		keep(fromBinary(run))
	}
	if percentRun().MatchString(s) {
		if raw, err := url.PathUnescape(s); err == nil {
			keep(raw)
		}
	}
	if entityRun().MatchString(s) {
		keep(html.UnescapeString(s))
	}
	if escapedRun().MatchString(s) {
		keep(unescapedText(s))
	}
	return out
}

// undisguiseText returns the forms that a reader would see through: spelled with gaps, with
// digits for letters, backwards, rotated by 13.
func undisguiseText(s string) []string {
	var out []string
	if runs := spacedRun().FindAllString(s, 8); runs != nil {
		strip := strings.NewReplacer("  ", " ", " ", "", ".", "", "_", "", "*", "", "-", "") // two gaps are one between words
		for _, run := range runs {
			out = append(out, strip.Replace(run))
		}
	}
	if strings.ContainsAny(s, "013457@$") {
		if like := leetLetters.Replace(s); like != s {
			out = append(out, like)
		}
	}
	return append(out, rotateLetters(s), reverseText(s))
}

func rotateLetters(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return 'a' + (r-'a'+13)%26
		}
		return r
	}, s)
}

func reverseText(s string) string {
	r := []rune(s)
	slices.Reverse(r)
	return string(r)
}

func fromBinary(s string) string {
	var b strings.Builder
	for octet := range strings.FieldsSeq(s) {
		for ; len(octet) >= 8; octet = octet[8:] {
			if n, err := strconv.ParseUint(octet[:8], 2, 8); err == nil {
				b.WriteByte(byte(n))
			}
		}
	}
	return b.String()
}

func unescapedText(s string) string {
	one := regexp.MustCompile(`\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})`)
	return one.ReplaceAllStringFunc(s, func(e string) string {
		n, err := strconv.ParseUint(e[2:], 16, 32)
		if err != nil {
			return e
		}
		return string(rune(n)) //nolint:gosec // four hex digits
	})
}

func isReadable(s string) bool {
	if len(s) < 8 || !utf8.ValidString(s) {
		return false
	}
	letters, all := 0, 0
	for _, r := range s {
		all++
		if unicode.IsLetter(r) || r == ' ' {
			letters++
		}
	}
	return letters*10 >= all*7
}
