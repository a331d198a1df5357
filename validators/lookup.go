package validators

import (
	"encoding/json"
	"strconv"
)

// The functions of this file find values in JSON text without decoding it. The
// text is well-formed where it comes from the program's own checks; on other text
// they may find nothing or too much, and end all the same.

// member is one pair of an object, as written.
type member struct {
	key     []byte // between the quotes
	escaped bool   // key has escapes
	value   []byte
}

// name is the decoded key.
func (m member) name() string {
	if !m.escaped {
		return string(m.key)
	}
	var text string
	quoted := append(append([]byte{'"'}, m.key...), '"')
	if json.Unmarshal(quoted, &text) != nil {
		return string(m.key)
	}
	return text
}

func (m member) is(key string) bool {
	if !m.escaped {
		return string(m.key) == key
	}
	return m.name() == key
}

// membersOf appends the pairs of an object to list; ok is false for any other value.
func membersOf(doc []byte, list []member) (out []member, ok bool) {
	i := space(doc, 0)
	if at(doc, i) != '{' {
		return nil, false
	}
	for i = space(doc, i+1); at(doc, i) == '"'; i = space(doc, i+1) {
		end, escaped := stringEnd(doc, i)
		if end < 0 {
			return nil, false
		}
		m := member{key: doc[i+1 : end-1], escaped: escaped}
		i = space(doc, end)
		if at(doc, i) != ':' {
			return nil, false
		}
		start := space(doc, i+1)
		if end = valueEnd(doc, start); end < 0 {
			return nil, false
		}
		m.value = doc[start:end]
		list = append(list, m)
		if i = space(doc, end); at(doc, i) != ',' {
			break
		}
	}
	return list, at(doc, i) == '}'
}

// elementOf returns an element of an array by its decimal index.
func elementOf(doc []byte, token string) ([]byte, bool) {
	index, err := strconv.Atoi(token)
	if err != nil || index < 0 || strconv.Itoa(index) != token {
		return nil, false
	}
	i := space(doc, 1)
	if at(doc, i) == ']' {
		return nil, false
	}
	for n := 0; ; n++ {
		end := valueEnd(doc, i)
		switch {
		case end < 0:
			return nil, false
		case n == index:
			return doc[i:end], true
		}
		if i = space(doc, end); at(doc, i) != ',' {
			return nil, false
		}
		i = space(doc, i+1)
	}
}

// valueEnd finds the end of the value at start, -1 when it has none.
func valueEnd(doc []byte, start int) int {
	switch at(doc, start) {
	case 0:
		return -1
	case '"':
		end, _ := stringEnd(doc, start)
		return end
	case '{', '[':
	default:
		i := start
		for i < len(doc) && doc[i] != ',' && doc[i] != '}' && doc[i] != ']' && doc[i] > ' ' {
			i++
		}
		if i == start {
			return -1
		}
		return i
	}
	depth := 0
	for i := start; i < len(doc); {
		switch doc[i] {
		case '"':
			end, _ := stringEnd(doc, i)
			if end < 0 {
				return -1
			}
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// stringEnd finds the end of the string at start, -1 when it has none.
func stringEnd(doc []byte, start int) (end int, escaped bool) {
	for i := start + 1; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			return i + 1, escaped
		case '\\':
			escaped = true
			i++
		}
	}
	return -1, false
}

func at(doc []byte, i int) byte {
	if i < len(doc) {
		return doc[i]
	}
	return 0
}

func space(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\n' || doc[i] == '\r') {
		i++
	}
	return i
}
