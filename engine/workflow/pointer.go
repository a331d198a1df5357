package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// splitPointer decodes a JSON pointer (RFC 6901) into its tokens. The pointer to
// the whole document, "", is refused: no setting of a definition means it.
func splitPointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, errors.New("a JSON pointer names at least one key, such as /customer/id")
	}
	if pointer[0] != '/' {
		return nil, errors.New("a JSON pointer begins with a slash, such as /customer/id")
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, t := range tokens {
		if t == "" {
			return nil, errors.New("a JSON pointer has a name after every slash, such as /customer/id")
		}
		plain, ok := unescapeToken(t)
		if !ok {
			return nil, errors.New(`a "~" in a JSON pointer is written ~0, a "/" within a name ~1`)
		}
		tokens[i] = plain
	}
	return tokens, nil
}

func unescapeToken(t string) (string, bool) {
	if !strings.Contains(t, "~") {
		return t, true
	}
	for i := 0; i < len(t); i++ {
		if t[i] == '~' && (i+1 == len(t) || t[i+1] != '0' && t[i+1] != '1') {
			return "", false
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~"), true
}

var tokenEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// joinPointer extends a JSON pointer by decoded tokens.
func joinPointer(pointer string, tokens ...string) string {
	var b strings.Builder
	b.WriteString(pointer)
	for _, t := range tokens {
		b.WriteByte('/')
		tokenEscaper.WriteString(&b, t) //nolint:errcheck // a Builder does not fail
	}
	return b.String()
}

// lookup returns the value at a path of decoded tokens, nil when nothing is
// there. The document is well-formed.
func lookup(doc []byte, tokens []string) []byte {
	for _, t := range tokens {
		doc = child(doc, t)
		if doc == nil {
			return nil
		}
	}
	return doc
}

var errFound = errors.New("found")

// child returns the literal of one member or element, nil when absent.
func child(doc []byte, token string) []byte {
	s := scanner{src: doc}
	var found []byte
	switch s.peek() {
	case '{':
		_ = s.object(func(m member) error {
			if string(m.key) == token {
				found = m.value
				return errFound
			}
			return nil
		})
	case '[':
		index, err := strconv.Atoi(token)
		if err != nil || strconv.Itoa(index) != token {
			return nil
		}
		_ = s.array(func(i int, value []byte) error {
			if i == index {
				found = value
				return errFound
			}
			return nil
		})
	}
	return found
}

// sameValue says whether two values are the same as JSON values: objects in any
// key order, numbers by value. Absent (nil) is only the same as absent.
func sameValue(a, b []byte) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return equalValues(x, y)
}

// equalValues compares decoded values. Numbers are float64 here, which is exact:
// documents with numbers that a float64 cannot keep are refused on entry.
func equalValues(x, y any) bool {
	switch x := x.(type) {
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, there := y[k]
			if !there || !equalValues(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalValues(x[i], y[i]) {
				return false
			}
		}
		return true
	default:
		return x == y
	}
}

// parentPointer cuts the last token off.
func parentPointer(pointer string) string {
	return pointer[:max(strings.LastIndexByte(pointer, '/'), 0)]
}
