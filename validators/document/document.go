// Package document reads JSON and YAML documents strictly, and reports where and why it rejects one.
//
// It promises that every reader understands an accepted document in the same way. It rejects whatever two
// readers could understand differently:
//
//   - invalid UTF-8, a lone surrogate escape, and NUL
//   - a duplicate key
//   - a number that a 64-bit float would turn into another decimal value
//   - nesting or a length beyond a limit
//
// Numbers keep their digits and keys keep their order. Every rejection is an [Issue] with line, column and
// JSON pointer.
//
// The parts:
//
//   - [Parse] reads a JSON or YAML document into a tree of [Node].
//   - [NewObject] reads such a tree key by key and collects every mistake. For an unknown key it suggests the nearest
//     known one.
//   - [ReadJSON] reads JSON once: members, elements, pointers, comparison and the canonical form work on the [JSON] that
//     it returns. [CheckJSON] only checks.
//   - [Builder] writes JSON that need not be read again.
//   - [Canonical] writes JSON in the canonical form of RFC 8785, for hashing.
//   - [Pointer] is a JSON pointer (RFC 6901).
//   - [Suggest] finds the known word nearest to a misspelt one.
//
// It must never:
//
//   - repair, guess or drop anything
//   - put a value of the document into a message, because it may be secret (keys are not)
//   - panic or recurse without bound on any input
//
// It is the only importer of a YAML library.
//
// # Numbers
//
// A number is accepted if the shortest decimal form of the nearest float64 has the same decimal value: 0.1,
// 1.50 and 1e3 are accepted; 9007199254740993, 1e400 and 0.1000000000000000055 are not. So every reader that
// uses float64 gets the written value, and writing it again loses nothing.
//
// # NUL
//
// U+0000 is rejected in keys and values, however it is escaped: PostgreSQL cannot store it, and C programs
// truncate text at it.
package document

import (
	"bytes"
	"fmt"
	"math"
	"path"
	"strings"
	"unicode/utf8"
)

// Defaults of Limits.
const (
	// DefaultBytes is the maximum length of a workflow definition.
	DefaultBytes = 256 << 10
	// DefaultDepth is the default maximum nesting of objects and arrays.
	DefaultDepth = 64
)

// Limits limit the size of a document and select how strictly it is read. A zero field means its default.
type Limits struct {
	// Bytes is the maximum length. Values above math.MaxInt32 are reduced to it.
	Bytes int
	// Lax accepts everything that encoding/json accepts, as long as it is valid UTF-8: duplicate keys, any
	// number, NUL, and lone surrogate escapes, which read as U+FFFD.
	Lax bool
	// Literals accepts any number, including those that a float64 would change.
	Literals bool
	// Spaced keeps the white space between tokens in the result of ReadJSON.
	Spaced bool
	// Depth is the maximum nesting of objects and arrays. A scalar has depth 0, {} has depth 1.
	Depth int
}

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = DefaultBytes
	}
	l.Bytes = min(l.Bytes, math.MaxInt32)
	if l.Depth <= 0 {
		l.Depth = DefaultDepth
	}
	return l
}

func (l Limits) tooLong(n int) *Issue {
	return &Issue{Rule: RuleSize, Message: fmt.Sprintf("the document has %d bytes; at most %d are allowed", n, l.Bytes)}
}

func depthMessage(limit int) string {
	return fmt.Sprintf("objects and arrays are nested more than %d deep", limit)
}

// Parse reads one JSON or YAML document. name appears in messages, and its extension (.json, .yaml, .yml)
// determines the format. With any other extension, text that begins with { or [ is JSON and all other text is
// YAML. A leading byte order mark is skipped. A zero field of limits means its default.
//
// From YAML 1.2 it accepts what JSON can express, under the core schema:
//
//   - yes, no, on and dates are strings.
//   - A plain scalar is a number only if it is also a number in JSON. It rejects .inf and numbers like 0x1F or 0123.
//   - Block scalars keep their line breaks.
//   - Anchors, aliases, merge keys, tags, directives, multiple documents and keys that are not strings are rejected.
//
// The error is an *Issue; parsing stops at the first one.
func Parse(name string, src []byte, limits Limits) (*Node, error) {
	limits = limits.withDefaults()
	n, issue := parseSource(name, src, limits)
	if issue != nil {
		issue.Source = name
		return nil, issue
	}
	n.source = name
	return n, nil
}

func parseSource(name string, src []byte, limits Limits) (*Node, *Issue) {
	if len(src) > limits.Bytes {
		return nil, limits.tooLong(len(src))
	}
	src = bytes.TrimPrefix(src, []byte("\xEF\xBB\xBF"))
	if isJSON(name, src) {
		return parseTree(src, limits, nil)
	}
	if issue := checkText(src); issue != nil {
		return nil, issue
	}
	return parseYAML(src, limits)
}

func isJSON(name string, src []byte) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".json":
		return true
	case ".yaml", ".yml":
		return false
	}
	src = bytes.TrimLeft(src, " \t\r\n")
	return len(src) > 0 && (src[0] == '{' || src[0] == '[')
}

// checkText rejects bytes that YAML text must not contain.
func checkText(src []byte) *Issue {
	refuse := func(at int, rule Rule, message string) *Issue {
		line, column := findPosition(src, at)
		return &Issue{Rule: rule, Line: line, Column: column, Message: message}
	}
	for i := 0; i < len(src); {
		c := src[i]
		switch {
		case c == 0:
			return refuse(i, RuleNUL, "NUL (U+0000) is not allowed")
		case c < 0x20 && c != '\t' && c != '\n' && c != '\r' || c == 0x7F:
			return refuse(i, RuleSyntax, "a control character must be escaped in a double-quoted string")
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && size == 1 {
				return refuse(i, RuleUTF8, "these bytes are not valid UTF-8")
			}
			switch {
			case r == 0x85 || r == 0x2028 || r == 0x2029:
				return refuse(i, RuleUnsupported, "some YAML readers treat U+0085, U+2028 and U+2029 as line breaks; escape it in a double-quoted string")
			case r < 0xA0 || r == 0xFFFE || r == 0xFFFF:
				return refuse(i, RuleSyntax, "a control character must be escaped in a double-quoted string")
			}
			i += size
		}
	}
	if len(bytes.TrimSpace(src)) == 0 {
		return &Issue{Rule: RuleSyntax, Line: 1, Column: 1, Message: "the document is empty"}
	}
	return nil
}
