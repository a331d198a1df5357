package schema

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/validators/document"
)

// accepts reports whether a document certainly conforms. What it does not accept, the
// library decides.
func (n *node) accepts(doc document.JSON) bool {
	m := matcher{steps: maxSteps}
	return m.accepts(n, doc, 0)
}

const (
	// maxSteps bounds the values looked at, so that a schema that multiplies the
	// work costs little here before the library gets it.
	maxSteps = 200_000
	// maxNesting bounds the recursion.
	maxNesting = 500
	// exactDigits is how many digits any float64 keeps.
	exactDigits = 15
)

// matcher reads a document once, and once more for each schema applied in place.
type matcher struct{ steps int }

// anything accepts every value but numbers that the program refuses.
var anything = node{minKeys: -1, maxKeys: -1, minItems: -1, maxItems: -1, minLength: -1, maxLength: -1}

// accepts judges one value.
func (m *matcher) accepts(n *node, at document.JSON, depth int) bool {
	if m.steps--; m.steps < 0 || depth > maxNesting {
		return false
	}
	if n == nil {
		n = &anything
	}
	ok := false
	switch at.Kind() {
	case document.Object:
		ok = n.allows(isObject) && m.acceptsObject(n, at, depth)
	case document.Array:
		ok = n.allows(isArray) && m.acceptsArray(n, at, depth)
	case document.String:
		ok = n.allows(isString) && n.acceptsString(at)
	case document.Number:
		ok = n.acceptsNumber(at)
	case document.True:
		ok = n.allows(isTrue)
	case document.False:
		ok = n.allows(isFalse)
	case document.Null:
		ok = n.allows(isNull)
	}
	return ok && m.acceptsInPlace(n, at, depth)
}

// allows judges by the type, and by constants where the type is all that they say.
func (n *node) allows(t typeSet) bool {
	if n.unsure || n.types != 0 && n.types&t == 0 {
		return false
	}
	if t == isString {
		return true
	}
	return (n.enum == nil || n.enum.literals&t != 0) && (n.constant == nil || n.constant.literals&t != 0)
}

// acceptsInPlace judges by the schemas that apply to the same value.
func (m *matcher) acceptsInPlace(n *node, at document.JSON, depth int) bool {
	for _, sub := range n.allOf {
		if !m.accepts(sub, at, depth+1) {
			return false
		}
	}
	return len(n.anyOf) == 0 || slices.ContainsFunc(n.anyOf, func(sub *node) bool { return m.accepts(sub, at, depth+1) })
}

func (m *matcher) acceptsObject(n *node, at document.JSON, depth int) bool {
	var seen uint64
	keys := 0
	for name, value := range at.Members() {
		p := n.properties[string(name.Bytes())]
		schema := p.schema
		if schema == nil {
			schema = n.additional
		}
		if p.schema == nil && n.closed || !m.accepts(schema, value, depth+1) {
			return false
		}
		seen |= p.bit
		keys++
	}
	return seen&n.required == n.required && isWithin(keys, n.minKeys, n.maxKeys)
}

func (m *matcher) acceptsArray(n *node, at document.JSON, depth int) bool {
	count := 0
	for _, value := range at.Elements() {
		if !m.accepts(n.items, value, depth+1) {
			return false
		}
		count++
	}
	return isWithin(count, n.minItems, n.maxItems)
}

func isWithin(n, least, most int) bool {
	return (least < 0 || n >= least) && (most < 0 || n <= most)
}

func (n *node) acceptsString(at document.JSON) bool {
	body := at.Bytes()
	return (n.minLength < 0 && n.maxLength < 0 || isWithin(utf8.RuneCount(body), n.minLength, n.maxLength)) &&
		(n.enum == nil || n.enum.strings[string(body)]) &&
		(n.constant == nil || n.constant.strings[string(body)]) &&
		(n.pattern == nil || n.pattern.Match(body)) &&
		(n.format == nil || n.format(string(body)))
}

func (n *node) acceptsNumber(at document.JSON) bool {
	literal := string(at.Raw())
	exponent := strings.IndexAny(literal, "eE")
	if n.unsure || exponent >= 0 && len(strings.TrimLeft(literal[exponent+1:], "+-")) > 3 {
		return false // a huge exponent is refused elsewhere
	}
	whole := exponent < 0 && !strings.Contains(literal, ".")
	if n.types != 0 && n.types&isNumber == 0 && (n.types&isInteger == 0 || !whole) {
		return false // the library says that 1.0 is an integer
	}
	if n.enum == nil && n.constant == nil && !n.numeric {
		return true
	}
	digits := len(literal) - strings.Count(literal, ".") - strings.Count(literal, "-")
	if exponent >= 0 || digits > exactDigits {
		return false
	}
	f, err := strconv.ParseFloat(literal, 64)
	return err == nil && (n.enum == nil || slices.Contains(n.enum.numbers, f)) && (n.constant == nil || slices.Contains(n.constant.numbers, f)) &&
		(!n.min.set || f > n.min.at || f == n.min.at && !n.min.exclusive) &&
		(!n.max.set || f < n.max.at || f == n.max.at && !n.max.exclusive) &&
		(n.multipleOf == 0 || whole && int64(f)%n.multipleOf == 0)
}
