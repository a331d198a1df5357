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

// Fingerprint reduces an action's data to the part that superficial edits do not change. Strings are in
// NFKC and lower case, with letters and digits only; keys and other values are kept. The order of keys and
// the notation of numbers do not matter. It returns the text to digest, not a digest, because only the
// caller has the key. Data that is not JSON is returned unchanged.
func Fingerprint(data []byte) []byte {
	doc := document.ReadTrusted(data)
	if doc.Kind() == 0 {
		return slices.Clone(data)
	}
	return FingerprintOf(doc)
}

// FingerprintOf is Fingerprint for a document that has been read already.
func FingerprintOf(doc document.JSON) []byte {
	return doc.AppendSorted(make([]byte, 0, len(doc.Raw())), appendPrint)
}

// minQuestionLetters is the minimum number of letters and digits in data that identifies a question on its own.
const minQuestionLetters = 64

// IsQuestion reports whether the strings in data are so specific that a refusal on one instance applies
// to every other instance. "squash" is not, a report of finished work is.
func IsQuestion(data document.JSON) bool { return countLetters(data) >= minQuestionLetters }

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
		return append(out, v.Canonical()...) // same for 1, 1.0 and 1e0
	}
	return append(out, v.Raw()...)
}

// fingerprintText returns the letters and digits of a string. NFKC is applied first: it turns wide,
// styled and ligated forms into plain ones, and composes letters with their accents. It is applied
// again because letters can compose after the characters between them are removed (Hangul). Modifiers
// and decorations (a superscript 2, an apostrophe that counts as a letter) and invisible characters
// (Hangul fillers are letters, too) carry no meaning and are removed.
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
