package schema

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/validators/document"
)

// verdict is what the recogniser knows about a value.
type verdict uint8

const (
	unsure verdict = iota // the library must say
	no
	yes
)

// accepts reports whether a document certainly conforms.
func (n *node) accepts(doc document.JSON) bool {
	r := matcher{steps: maxSteps}
	return r.matchValue(n, doc, 0) == yes
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

// matchValue judges one value.
func (r *matcher) matchValue(n *node, at document.JSON, depth int) (v verdict) {
	if r.steps--; r.steps < 0 || depth > maxNesting {
		return unsure
	}
	if n == nil || n.trivia {
		n = &anything
	}
	switch {
	case n.never:
		return no
	case n.unsure:
		return unsure
	}
	switch at.Kind() {
	case document.Object:
		v = r.matchObject(n, at, depth)
	case document.Array:
		v = r.matchArray(n, at, depth)
	case document.String:
		v = n.matchString(at)
	case document.Number:
		v = n.matchNumber(at)
	case document.True:
		v = n.matchLiteral(isTrue)
	case document.False:
		v = n.matchLiteral(isFalse)
	case document.Null:
		v = n.matchLiteral(isNull)
	}
	if v == yes && n.inPlace {
		v = r.matchInPlace(n, at, depth)
	}
	return v
}

// matchInPlace judges by the schemas that apply to the same value.
func (r *matcher) matchInPlace(n *node, at document.JSON, depth int) verdict {
	is := func(sub *node) verdict { return r.matchValue(sub, at, depth+1) }
	if n.ref != nil {
		if v := is(n.ref); v != yes {
			return v
		}
	}
	for _, sub := range n.allOf {
		if v := is(sub); v != yes {
			return v
		}
	}
	if n.not != nil {
		switch is(n.not) {
		case yes:
			return no
		case unsure:
			return unsure
		}
	}
	if v := matchAnyOf(n.anyOf, is); v != yes {
		return v
	}
	if v := matchOneOf(n.oneOf, is); v != yes {
		return v
	}
	if n.condition == nil {
		return yes
	}
	switch is(n.condition) {
	case yes:
		if n.then != nil {
			return is(n.then)
		}
	case no:
		if n.otherwise != nil {
			return is(n.otherwise)
		}
	default:
		return unsure
	}
	return yes
}

func matchAnyOf(list []*node, is func(*node) verdict) verdict {
	if len(list) == 0 {
		return yes
	}
	v := no
	for _, sub := range list {
		switch is(sub) {
		case yes:
			return yes
		case unsure:
			v = unsure
		}
	}
	return v
}

func matchOneOf(list []*node, is func(*node) verdict) verdict {
	if len(list) == 0 {
		return yes
	}
	matches := 0
	for _, sub := range list {
		switch is(sub) {
		case yes:
			matches++
		case unsure:
			return unsure
		}
	}
	if matches == 1 {
		return yes
	}
	return no
}

// matchType judges by the type alone.
func (n *node) matchType(t typeSet) verdict {
	if n.types != 0 && n.types&t == 0 {
		return no
	}
	return yes
}

// matchLiteral judges a constant that is no string and no number.
func (c *constants) matchLiteral(t typeSet) verdict {
	if c == nil || c.literals&t != 0 {
		return yes
	}
	return no
}

// matchComposite judges an object or array against constants: only the library compares
// those.
func (c *constants) matchComposite() verdict {
	switch {
	case c == nil:
		return yes
	case c.composite:
		return unsure
	}
	return no
}

func (n *node) matchLiteral(t typeSet) verdict {
	return combineVerdicts(n.matchType(t), n.enum.matchLiteral(t), n.constant.matchLiteral(t))
}

// combineVerdicts joins the verdicts of several keywords; a no outweighs an unsure.
func combineVerdicts(all ...verdict) verdict {
	v := yes
	for _, one := range all {
		if one == no {
			return no
		}
		v = min(v, one)
	}
	return v
}

func (r *matcher) matchObject(n *node, at document.JSON, depth int) verdict {
	if v := combineVerdicts(n.matchType(isObject), n.enum.matchComposite(), n.constant.matchComposite()); v != yes {
		return v
	}
	var seen uint64
	keys := 0
	for name, value := range at.Members() {
		bit, v := r.matchMember(n, name, value, depth)
		if v != yes {
			return v
		}
		seen |= bit
		keys++
	}
	if seen&n.required != n.required || !isWithin(keys, n.minKeys, n.maxKeys) {
		return no
	}
	return yes
}

// anything accepts every value.
var anything = node{trivia: true, minKeys: -1, maxKeys: -1, minItems: -1, maxItems: -1, minLength: -1, maxLength: -1}

// matchMember judges one key with its value. bit says which required name it was.
func (r *matcher) matchMember(n *node, name, value document.JSON, depth int) (bit uint64, v verdict) {
	if n.names != nil {
		if v := r.matchValue(n.names, name, depth+1); v != yes {
			return 0, v
		}
	}
	key := name.Bytes()
	p, spoken := n.properties[string(key)]
	spoken = spoken && p.schema != nil
	if v = r.matchValue(p.schema, value, depth+1); v != yes {
		return 0, v
	}
	for _, pp := range n.patterns {
		if pp.pattern.Match(key) {
			spoken = true
			if v := r.matchValue(pp.schema, value, depth+1); v != yes {
				return 0, v
			}
		}
	}
	switch {
	case spoken:
		return p.bit, yes
	case n.closed:
		return 0, no
	case n.additional != nil:
		return p.bit, r.matchValue(n.additional, value, depth+1)
	}
	return p.bit, yes
}

func (r *matcher) matchArray(n *node, at document.JSON, depth int) verdict {
	if v := combineVerdicts(n.matchType(isArray), n.enum.matchComposite(), n.constant.matchComposite()); v != yes {
		return v
	}
	count := 0
	for i, value := range at.Elements() {
		item := n.items
		if i < len(n.prefix) {
			item = n.prefix[i]
		}
		if v := r.matchValue(item, value, depth+1); v != yes {
			return v
		}
		count++
	}
	if !isWithin(count, n.minItems, n.maxItems) {
		return no
	}
	return yes
}

func isWithin(n, least, most int) bool {
	return (least < 0 || n >= least) && (most < 0 || n <= most)
}

func (n *node) matchString(at document.JSON) verdict {
	if n.matchType(isString) == no {
		return no
	}
	body := at.Bytes()
	if (n.minLength >= 0 || n.maxLength >= 0) && !isWithin(utf8.RuneCount(body), n.minLength, n.maxLength) {
		return no
	}
	switch {
	case n.enum != nil && !n.enum.strings[string(body)],
		n.constant != nil && !n.constant.strings[string(body)],
		n.pattern != nil && !n.pattern.Match(body),
		n.format != nil && !n.format(string(body)):
		return no
	}
	return yes
}

func (n *node) matchNumber(at document.JSON) verdict {
	literal := string(at.Raw())
	exponent := strings.IndexAny(literal, "eE")
	if exponent >= 0 && len(strings.TrimLeft(literal[exponent+1:], "+-")) > 3 {
		return unsure // a huge exponent is refused elsewhere
	}
	if n.types&(isNumber|isInteger) == 0 && n.types != 0 {
		return no
	}
	whole := exponent < 0 && !strings.Contains(literal, ".")
	onlyWhole := n.types&isNumber == 0 && n.types != 0
	if n.enum == nil && n.constant == nil && !n.numeric && (!onlyWhole || whole) {
		return yes
	}
	digits := len(literal) - strings.Count(literal, ".") - strings.Count(literal, "-")
	if exponent >= 0 || digits > exactDigits {
		return unsure
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return unsure
	}
	if onlyWhole && !whole {
		if f == math.Trunc(f) {
			return unsure // 1.0 is an integer; the library says so too
		}
		return no
	}
	return combineVerdicts(n.enum.matchNumber(f), n.constant.matchNumber(f), n.min.matchMinimum(f), n.max.matchMaximum(f), n.matchMultiple(f, whole))
}

func (c *constants) matchNumber(f float64) verdict {
	if c == nil {
		return yes
	}
	for _, one := range c.numbers {
		if one == f {
			return yes
		}
	}
	if c.composite {
		return unsure
	}
	return no
}

func (b bound) matchMinimum(f float64) verdict {
	if !b.set || f > b.at || f == b.at && !b.exclusive {
		return yes
	}
	return no
}

func (b bound) matchMaximum(f float64) verdict {
	if !b.set || f < b.at || f == b.at && !b.exclusive {
		return yes
	}
	return no
}

func (n *node) matchMultiple(f float64, whole bool) verdict {
	switch {
	case n.multipleOf == 0:
		return yes
	case !whole:
		return unsure
	case int64(f)%n.multipleOf == 0:
		return yes
	}
	return no
}
