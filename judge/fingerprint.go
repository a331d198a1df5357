package judge

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Fingerprint reduces an action's data to what a rewording does not change: the
// strings, NFKC, lower-cased, letters and digits only, with keys and other values.
// The order of keys and the way in which a number is written do not matter either.
// It returns the text to digest, not a digest: only the caller has the key. What is
// not JSON is its own fingerprint.
func Fingerprint(data []byte) []byte {
	doc := document.Known(data)
	if doc.Kind() == 0 {
		return slices.Clone(data)
	}
	return FingerprintOf(doc)
}

// FingerprintOf is Fingerprint of a document that was read.
func FingerprintOf(doc document.JSON) []byte {
	return doc.AppendSorted(make([]byte, 0, len(doc.Raw())), appendPrint)
}

// leastQuestion is how many letters and digits data have that are a question of their own.
const leastQuestion = 64

// IsQuestion reports whether the texts of data say so much that what was refused of them on one
// instance is refused on every other. "squash" is not, a report of what was done is.
func IsQuestion(data document.JSON) bool { return countLetters(data) >= leastQuestion }

func countLetters(v document.JSON) (n int) {
	switch v.Kind() {
	case document.Object:
		for _, value := range v.Members() {
			n += countLetters(value)
		}
	case document.Array:
		for _, item := range v.Elements() {
			n += countLetters(item)
		}
	case document.String:
		n = utf8.RuneCountInString(fingerprintText(v.Text()))
	}
	return n
}

// appendPrint writes two values alike only if they mean the same.
func appendPrint(out []byte, v document.JSON) []byte {
	switch v.Kind() {
	case document.String:
		return append(append(append(out, '"'), fingerprintText(v.Text())...), '"')
	case document.Number:
		return append(out, v.Canonical()...) // 1, 1.0 and 1e0 alike
	}
	return append(out, v.Raw()...)
}

// fingerprintText is the letters and digits of a text. NFKC comes first: it makes wide, styled
// and ligated forms plain, and composes letters with their accents. It comes again
// because letters compose that something stood between (Hangul). What only modifies
// or decorates (a raised 2, an apostrophe that counts as a letter) and what nobody sees
// (Hangul fillers are letters, too) says nothing.
func fingerprintText(text string) string {
	plain := strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Lm, unicode.No) || prompts.Hidden(r) {
			return -1
		}
		return r
	}, text)
	return norm.NFKC.String(strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) || unicode.Is(unicode.Lm, r) || prompts.Hidden(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFKC.String(plain)))
}
