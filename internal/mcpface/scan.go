package mcpface

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is a range of a line.
type span struct{ start, end int }

func (s span) of(line []byte) json.RawMessage { return line[s.start:s.end] }
func (s span) empty() bool                    { return s.start == s.end }

// eachMember calls visit with every member of the JSON object at line[at.start:at.end],
// which must be valid JSON, in order; visit stops the walk by returning false.
func eachMember(line []byte, at span, visit func(key string, value span) bool) {
	i := skipSpace(line, at.start+1)
	for i < at.end && line[i] == '"' {
		end := skipString(line, i)
		key := keyText(line[i:end])
		i = skipSpace(line, skipSpace(line, end)+1) // the colon
		end = skipValue(line, i)
		if !visit(key, span{i, end}) {
			return
		}
		if i = skipSpace(line, end); line[i] == ',' {
			i = skipSpace(line, i+1)
		}
	}
}

// keyText is what a JSON string says.
func keyText(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return ""
	}
	return s
}

// skipValue returns the offset after the value that starts at i.
func skipValue(line []byte, i int) int {
	switch line[i] {
	case '"':
		return skipString(line, i)
	case '{', '[':
		return skipNested(line, i)
	}
	for i < len(line) && !strings.ContainsRune(",]} \t\r\n", rune(line[i])) {
		i++
	}
	return i
}

func skipNested(line []byte, i int) int {
	for depth := 0; i < len(line); i++ {
		switch line[i] {
		case '"':
			i = skipString(line, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return i
}

func skipString(line []byte, i int) int {
	for i++; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return i
}

func skipSpace(line []byte, i int) int {
	for i < len(line) && (line[i] == ' ' || line[i] == '\t' || line[i] == '\r' || line[i] == '\n') {
		i++
	}
	return i
}

// folded is a key as Go's decoder compares it: members of a struct are found in
// any case, so keys that differ only in case are one key to it.
func folded(key string) string {
	return strings.Map(func(r rune) rune {
		for { // the smallest rune of those that fold into one another
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, key)
}
