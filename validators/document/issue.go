package document

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Rule is a stable code for the kind of an Issue.
type Rule string

// The rules that a document can violate.
const (
	RuleSyntax       Rule = "syntax"        // not well-formed JSON or YAML
	RuleUTF8         Rule = "utf8"          // bytes or escapes that are not Unicode text
	RuleNUL          Rule = "nul"           // U+0000
	RuleDuplicateKey Rule = "duplicate_key" // a key occurs twice in one object
	RuleNumber       Rule = "number"        // a float64 would change the number
	RuleDepth        Rule = "depth"         // nested deeper than Limits.Depth
	RuleSize         Rule = "size"          // longer than Limits.Bytes
	RuleUnsupported  Rule = "unsupported"   // YAML that JSON cannot express
	RuleUnknownKey   Rule = "unknown_key"   // a key that the format does not define
	RuleMissing      Rule = "missing"       // a required key is absent
	RuleType         Rule = "type"          // a value of the wrong kind
	RuleValue        Rule = "value"         // a value of the right kind that is not allowed
)

// Issue is one problem of a document, with its position.
type Issue struct {
	Rule Rule
	// Source is the document's name as given to Parse, or "".
	Source string
	// Path is a JSON pointer (RFC 6901) to the value; "" is the whole document. Keys of more than 80 bytes are
	// shortened in it.
	Path string
	// Line and Column are 1-based; Column counts characters. Both are 0 when unknown.
	Line, Column int
	// Message is one sentence. It contains no position, and of the document only keys, no values.
	Message string
	// Key is the offending key for RuleUnknownKey, RuleMissing and RuleDuplicateKey.
	Key string
	// Suggestion is the valid word that is most similar to the wrong one, or "".
	Suggestion string

	offset int // in the source text, in bytes
}

// Error returns position, path and message on one line.
func (i *Issue) Error() string {
	text := i.Message
	if i.Path != "" {
		text = i.Path + ": " + text
	}
	switch {
	case i.Source != "" && i.Line > 0:
		return fmt.Sprintf("%s:%d:%d: %s", i.Source, i.Line, i.Column, text)
	case i.Source != "":
		return i.Source + ": " + text
	case i.Line > 0:
		return fmt.Sprintf("%s (line %d, column %d)", text, i.Line, i.Column)
	}
	return text
}

// Errors holds all issues of one document, ordered by line.
type Errors []*Issue

// Error lists every issue, one per line.
func (e Errors) Error() string {
	switch len(e) {
	case 0:
		return "no issues"
	case 1:
		return e[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d issues:", len(e))
	for _, i := range e {
		b.WriteString("\n  ")
		b.WriteString(i.Error())
	}
	return b.String()
}

// Unwrap returns the issues, so that errors.As finds them.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, issue := range e {
		out[i] = issue
	}
	return out
}

// maxToken limits the length of one key in a path or message, in bytes.
const maxToken = 80

// clipKey shortens a key for messages, at a character boundary.
func clipKey(key string) string {
	if len(key) <= maxToken {
		return key
	}
	cut := maxToken
	for cut > 0 && !utf8.RuneStart(key[cut]) {
		cut--
	}
	return key[:cut] + "…"
}

// appendToken adds one decoded token to a JSON pointer.
func appendToken(pointer, token string) string {
	return pointer + "/" + tokenEscaper.Replace(clipKey(token))
}

func findPosition(src []byte, offset int) (line, column int) {
	line, start := 1, 0
	for i, c := range src[:offset] {
		if c == '\n' {
			line++
			start = i + 1
		}
	}
	return line, utf8.RuneCount(src[start:offset]) + 1
}
