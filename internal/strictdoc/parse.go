package strictdoc

import (
	"bytes"
	"path"
	"strings"
	"unicode/utf8"
)

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
	n, issue := parse(name, src, limits)
	if issue != nil {
		issue.Source = name
		return nil, issue
	}
	n.source = name
	return n, nil
}

func parse(name string, src []byte, limits Limits) (*Node, *Issue) {
	if len(src) > limits.Bytes {
		return nil, limits.tooLong(len(src))
	}
	src = bytes.TrimPrefix(src, []byte("\xEF\xBB\xBF"))
	if isJSON(name, src) {
		return parseJSON(src, limits)
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
		line, column := position(src, at)
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
