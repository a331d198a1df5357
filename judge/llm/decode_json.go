package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
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

var (
	errDeep = errors.New("it is nested too deep")
	errUTF8 = errors.New("it is not valid UTF-8")
)

// parseJSON reads exactly one JSON value.
func parseJSON(raw []byte) (any, error) {
	if !utf8.Valid(raw) {
		return nil, errUTF8
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := parseValue(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after it")
	}
	return v, nil
}

func parseValue(dec *json.Decoder, depth int) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if depth == maxDepth {
		return nil, errDeep
	}
	if delim == '[' {
		list := []any{}
		for dec.More() {
			v, err := parseValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	}
	o := object{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("a key is %v", key)
		}
		v, err := parseValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		o = append(o, member{name, v})
	}
	_, err = dec.Token()
	return o, err
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
