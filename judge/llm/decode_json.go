package llm

import (
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// member is one member of an object, in the order in which it was written.
type member struct {
	key   string
	value any // object, []any, string, json.Number, bool or nil
}

// object is a JSON object that keeps what encoding/json would drop: the order, and
// that a key was there twice.
type object []member

// maxDepth is how deep an answer may nest; honest ones need four.
const maxDepth = 64

// parseJSON reads exactly one JSON value.
func parseJSON(raw []byte) (any, error) {
	v, err := document.ReadJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: maxDepth, Lax: true})
	if err != nil {
		return nil, err
	}
	return valueOf(v), nil
}

func valueOf(v document.JSON) any {
	switch v.Kind() {
	case document.Object:
		o := object{}
		for name, value := range v.Members() {
			o = append(o, member{name.Text(), valueOf(value)})
		}
		return o
	case document.Array:
		list := []any{}
		for _, item := range v.Elements() {
			list = append(list, valueOf(item))
		}
		return list
	}
	return v.Any()
}

// get returns the value of a key. An object that has the key twice, or in another
// spelling of case, says two things at once: that is an error.
func (o object) get(key string) (value any, there bool, err error) {
	for _, m := range o {
		switch {
		case m.key == key && !there:
			value, there = m.value, true
		case m.key == key:
			return nil, true, fmt.Errorf("%q is there twice", key)
		case strings.EqualFold(m.key, key):
			return nil, true, fmt.Errorf("%q is written as %q", key, cleanText(m.key, 40))
		}
	}
	return value, there, nil
}

// has reports whether the object has the key in any spelling of case.
func (o object) has(key string) bool {
	for _, m := range o {
		if strings.EqualFold(m.key, key) {
			return true
		}
	}
	return false
}

// text returns the value of a key when it is a string, "" otherwise. It is for
// what does not decide anything.
func (o object) text(key string) string {
	for _, m := range o {
		if m.key == key {
			s, _ := m.value.(string)
			return s
		}
	}
	return ""
}

// inner is text's like for objects.
func (o object) inner(key string) object {
	for _, m := range o {
		if m.key == key {
			in, _ := m.value.(object)
			return in
		}
	}
	return nil
}

// objectsIn finds the outermost objects in a text, braces in strings aside. The
// second result is true when one of them has no end. It looks at each byte once.
func objectsIn(text string) (found []string, unended bool) {
	depth, begin, inString := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case inString:
			inString = c != '"'
		case depth > 0 && c == '"':
			inString = true
		case c == '{':
			if depth == 0 {
				begin = i
			}
			depth++
		case c == '}' && depth > 0:
			if depth--; depth == 0 {
				found = append(found, text[begin:i+1])
			}
		}
	}
	return found, depth > 0
}
