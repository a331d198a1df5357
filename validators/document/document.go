// Package document reads JSON and YAML documents without mercy, and says where
// and why it refuses one.
//
// It promises that a document means one thing only, whoever reads it next. What
// two readers could understand differently is refused: invalid UTF-8, a lone
// surrogate escape, NUL, a duplicate key, a number that a 64-bit float
// would turn into another decimal value, nesting beyond a limit, more bytes than
// a limit. Numbers keep the digits they were written with and keys keep their
// order. Every refusal is an [Issue] with line, column and JSON pointer.
//
// The parts:
//
//   - [Parse] reads a JSON or YAML document into a tree of [Node].
//   - [NewObject] reads such a tree key by key and collects every mistake,
//     unknown keys with the nearest known one included.
//   - [ReadJSON] reads JSON once: members, elements, pointers, comparison and the
//     canonical form work on the [JSON] that it returns. [CheckJSON] only checks.
//   - [Builder] writes JSON that need not be read again.
//   - [Canonical] writes JSON in the one form of RFC 8785, for hashing.
//   - [Pointer] is a JSON pointer (RFC 6901).
//   - [Suggest] finds the word that somebody probably meant.
//
// It must never repair, guess or drop anything, never put a value of the
// document into a message (it may be a secret; keys are not), and never panic or
// recurse without bound on any input. It is the only importer of a YAML library.
//
// # Numbers
//
// A number is accepted when the shortest decimal form of the float64 nearest to
// it is the same decimal value: 0.1, 1.50 and 1e3 are; 9007199254740993, 1e400
// and 0.1000000000000000055 are not. So every reader that uses float64 sees what
// was written, and writing it again loses nothing.
//
// # NUL
//
// U+0000 is refused in keys and in values, however it is escaped: PostgreSQL
// cannot store it and programs in C cut text there.
package document

import (
	"bytes"
	"fmt"
	"math"
	"path"
	"strings"
	"unicode/utf8"
)

// The defaults of Limits.
const (
	// DefaultBytes is what a workflow definition may weigh.
	DefaultBytes = 256 << 10
	// DefaultDepth is how deep objects and arrays may nest.
	DefaultDepth = 64
)

// Limits bound a document before it costs anything. A zero field means its default.
type Limits struct {
	// Bytes is the greatest length.
	Bytes int
	// Lax takes all that encoding/json takes, and valid UTF-8 only: duplicate keys,
	// any number, NUL, and half of a surrogate pair, which reads as U+FFFD.
	Lax bool
	// Literals takes any number, also one that a float64 would change.
	Literals bool
	// Spaced keeps the white space between tokens in what ReadJSON returns.
	Spaced bool
	// Depth is how many objects and arrays may lie inside one another; a scalar
	// has depth 0, {} has 1.
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

// Parse reads one JSON or YAML document. name stands in messages, and its
// extension (.json, .yaml, .yml) says what the document is; without one, text
// that begins with { or [ is JSON and any other is YAML. A byte order mark at
// the beginning is passed over. A zero field of limits means its default.
//
// Of YAML 1.2 it reads what JSON can express, in the core schema's sense: yes,
// no and on are strings, and so is a date; a plain scalar is a number only where
// it is one in JSON too. Anchors, aliases, merge keys, tags, directives, several
// documents, keys that are no strings, .inf and numbers like 0x1F or 0123 are
// refused. Block scalars keep their line breaks.
//
// The error is an *Issue: the first thing wrong ends the reading.
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

// checkText refuses bytes that no YAML text may hold.
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
				return refuse(i, RuleUnsupported, "some readers of YAML take U+0085, U+2028 and U+2029 for line breaks; escape it in a double-quoted string")
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
