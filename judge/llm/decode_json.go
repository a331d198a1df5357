package llm

import (
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// maxDepth is how deep an answer may nest; honest ones need four.
const maxDepth = 64

// parseJSON reads exactly one JSON value.
func parseJSON(raw []byte) (document.JSON, error) {
	return document.ReadJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: maxDepth, Lax: true})
}

// getMember returns the value of a key, absent when there is none. An object that has the
// key twice, or in another spelling of case, says two things at once: that is an error.
func getMember(o document.JSON, key string) (value document.JSON, err error) {
	for name, v := range o.Members() {
		switch is := name.Text(); {
		case is == key && value.Kind() == 0:
			value = v
		case is == key:
			return document.JSON{}, fmt.Errorf("%q is there twice", key)
		case strings.EqualFold(is, key):
			return document.JSON{}, fmt.Errorf("%q is written as %q", key, cleanText(is, 40))
		}
	}
	return value, nil
}

// hasMember reports whether the object has the key in any spelling of case.
func hasMember(o document.JSON, key string) bool {
	for name := range o.Members() {
		if strings.EqualFold(name.Text(), key) {
			return true
		}
	}
	return false
}

// isSet reports whether a value is there and not null.
func isSet(v document.JSON) bool { return v.Kind() != 0 && v.Kind() != document.Null }

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
