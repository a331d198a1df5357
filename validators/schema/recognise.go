package schema

import (
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/gavel-mcp/gavel/validators/document"
)

// verdict is what the recogniser knows about a value. Of several the lowest counts.
type verdict uint8

const (
	unsure verdict = iota // the library must say
	no
	yes
)

const (
	// maxSteps bounds the values looked at, so that a schema that multiplies the
	// work costs little here before the library gets it. A simple schema stays below it for
	// every document that the program takes.
	maxSteps = 4_000_000
	// maxNesting bounds the recursion.
	maxNesting = 500
)

// matcher reads a document once, and once more for each schema applied in place. Silent, it
// ends at the first no; else it goes on, and says no with the errors that the library would
// give, so that they are worded by the same code.
type matcher struct {
	steps  int
	silent bool
	depth  int    // of the steps taken silently
	path   []step // of the others, from the whole document on
	found  []*jsonschema.ValidationError
}

// step is one edge with what it takes from the value: a member, an element or neither.
type step struct {
	path  string
	key   document.JSON // absent: no member
	index int           // -1: no element
}

// match judges a document. With no comes the library's error.
func (n *node) match(doc document.JSON) (verdict, *jsonschema.ValidationError) {
	m := matcher{steps: maxSteps, silent: true}
	if v := m.matchValue(n, doc); v != no {
		return v, nil
	}
	m.silent = false
	if v := m.matchValue(n, doc); v != no {
		return v, nil // more to look at, so less is sure
	}
	return no, m.adopt(m.newError(n, "", "refused"), m.found[0])
}

// goesOn says whether more is to be found out after a verdict.
func (m *matcher) goesOn(v verdict) bool { return v == yes || v == no && !m.silent }

// refuse records that a keyword is broken. The library's own messages are never shown, but
// for counts and indices in some.
func (m *matcher) refuse(n *node, keyword, message string) verdict {
	if !m.silent {
		m.found = append(m.found, m.newError(n, keyword, message))
	}
	return no
}

// gather makes one error of those since mark.
func (m *matcher) gather(mark int, under *jsonschema.ValidationError) {
	under.Causes = slices.Clone(m.found[mark:])
	m.found = append(m.found[:mark], under)
}

// adopt puts an error under another as the library does: one that has no message of its own
// only holds others together.
func (m *matcher) adopt(under, err *jsonschema.ValidationError) *jsonschema.ValidationError {
	if under.Causes = []*jsonschema.ValidationError{err}; err.Message == "" {
		under.Causes = err.Causes
	}
	return under
}

func (m *matcher) newError(n *node, keyword, message string) *jsonschema.ValidationError {
	var inSchema, inDocument []byte
	for _, s := range m.path {
		inSchema = append(append(inSchema, '/'), s.path...)
		switch { // the library leaves an empty name out
		case s.key.Kind() != 0:
			inDocument = append(append(inDocument, '/'), escapeLocation(s.key.Text())...)
		case s.index >= 0:
			inDocument = strconv.AppendInt(append(inDocument, '/'), int64(s.index), 10)
		}
	}
	absolute := n.location
	if keyword != "" {
		inSchema = append(append(inSchema, '/'), keyword...)
		absolute += "/" + keyword
	}
	return &jsonschema.ValidationError{KeywordLocation: string(inSchema), AbsoluteKeywordLocation: absolute, InstanceLocation: string(inDocument), Message: message}
}

// escapeLocation writes a name as a segment of the library's locations.
func escapeLocation(name string) string { return url.PathEscape(escapeToken(name)) }

// follow judges a value by the schema that an edge leads to.
func (m *matcher) follow(e edge, key document.JSON, index int, value document.JSON) verdict {
	if e.to == nil || e.to.trivial {
		return yes
	}
	if m.silent {
		m.depth++
		v := m.matchValue(e.to, value)
		m.depth--
		return v
	}
	m.path = append(m.path, step{e.path, key, index})
	v := m.matchValue(e.to, value)
	m.path = m.path[:len(m.path)-1]
	return v
}

// apply judges the same value by another schema.
func (m *matcher) apply(e edge, at document.JSON) verdict {
	return m.follow(e, document.JSON{}, -1, at)
}

// try is apply for the verdict alone.
func (m *matcher) try(e edge, at document.JSON) verdict {
	was := m.silent
	m.silent = true
	v := m.apply(e, at)
	m.silent = was
	return v
}

// matchValue judges one value. Of a no there is one error at most.
func (m *matcher) matchValue(n *node, at document.JSON) verdict {
	switch {
	case n.trivial:
		return yes
	case n.never:
		return m.refuse(n, "", "not allowed")
	case n.unsure:
		return unsure
	}
	if m.steps--; m.steps < 0 || len(m.path)+m.depth > maxNesting {
		return unsure
	}
	if n.types != 0 && !n.allowsType(at) {
		return m.refuse(n, "type", "type")
	}
	mark := len(m.found)
	v := m.matchConstants(n, at)
	if m.goesOn(v) {
		v = min(v, m.matchKind(n, at))
	}
	if n.inPlace && m.goesOn(v) {
		v = min(v, m.matchInPlace(n, at))
	}
	if len(m.found) > mark+1 {
		m.gather(mark, m.newError(n, "", ""))
	}
	return v
}

func (n *node) allowsType(at document.JSON) bool {
	switch at.Kind() {
	case document.Object:
		return n.types&isObject != 0
	case document.Array:
		return n.types&isArray != 0
	case document.String:
		return n.types&isString != 0
	case document.Number:
		if n.types&isNumber != 0 || n.types&isInteger == 0 {
			return n.types&isNumber != 0
		}
		number := newNumber(at.Raw())
		return number.isWhole()
	}
	return n.types&typeOfLiteral(at.Kind()) != 0
}

func typeOfLiteral(k document.Kind) typeSet {
	switch k {
	case document.True:
		return isTrue
	case document.False:
		return isFalse
	}
	return isNull
}

func (m *matcher) matchConstants(n *node, at document.JSON) verdict {
	v := yes
	if n.constant != nil && !n.constant.contains(at) {
		v = m.refuse(n, "const", "const")
	}
	if n.enum != nil && m.goesOn(v) && !n.enum.contains(at) {
		v = m.refuse(n, "enum", "enum")
	}
	return v
}

// matchKind judges by the keywords for one kind of value.
func (m *matcher) matchKind(n *node, at document.JSON) verdict {
	switch at.Kind() {
	case document.Object:
		return m.matchObject(n, at)
	case document.Array:
		return m.matchArray(n, at)
	case document.String:
		return m.matchString(n, at)
	case document.Number:
		return m.matchNumber(n, at)
	}
	return yes
}

// matchAmount judges a length by two keywords; -1 is no limit.
func (m *matcher) matchAmount(n *node, amount, least, most int, minimum, maximum string) verdict {
	v := yes
	if least >= 0 && amount < least {
		v = m.refuse(n, minimum, minimum)
	}
	if most >= 0 && amount > most && m.goesOn(v) {
		v = m.refuse(n, maximum, maximum)
	}
	return v
}

func (m *matcher) matchObject(n *node, at document.JSON) verdict {
	v := yes
	var seen uint64
	keys, foreign := 0, false
	for name, value := range at.Members() {
		keys++
		key := name.Bytes()
		p := n.properties[string(key)]
		seen |= p.bit
		one, known := m.matchMember(n, p, key, name, value)
		v = min(v, one)
		foreign = foreign || !known
		if !m.goesOn(v) {
			return v
		}
	}
	if foreign && n.closed {
		v = min(v, m.refuse(n, "additionalProperties", "additionalProperties"))
	}
	if seen&n.required != n.required && m.goesOn(v) {
		v = m.refuse(n, "required", "required")
	}
	if m.goesOn(v) {
		v = min(v, m.matchAmount(n, keys, n.minKeys, n.maxKeys, "minProperties", "maxProperties"))
	}
	return v
}

// matchMember judges one key with its value. known is false for one that no property and no
// pattern names.
func (m *matcher) matchMember(n *node, p property, key []byte, name, value document.JSON) (v verdict, known bool) {
	v = m.follow(n.names, name, -1, name)
	if known = p.to != nil; known {
		v = min(v, m.follow(p.edge, name, -1, value))
	}
	for _, pp := range n.patterns {
		if pp.pattern.Match(key) {
			known = true
			v = min(v, m.follow(pp.edge, name, -1, value))
		}
	}
	if !known {
		v = min(v, m.follow(n.additional, name, -1, value))
	}
	return v, known
}

func (m *matcher) matchArray(n *node, at document.JSON) verdict {
	v := yes
	count := 0
	for i, value := range at.Elements() {
		count++
		item := n.items
		if i < len(n.prefix) {
			item = n.prefix[i]
		}
		if v = min(v, m.follow(item, document.JSON{}, i, value)); !m.goesOn(v) {
			return v
		}
	}
	v = min(v, m.matchAmount(n, count, n.minItems, n.maxItems, "minItems", "maxItems"))
	if n.unique && m.goesOn(v) {
		v = min(v, m.matchUnique(n, at))
	}
	if n.contains.to != nil && m.goesOn(v) {
		v = min(v, m.matchContains(n, at))
	}
	return v
}

func (m *matcher) matchUnique(n *node, at document.JSON) verdict {
	var few [fewItems]document.JSON
	earlier, later, found, sure := findTwins(listElements(at, few[:0]))
	switch {
	case !sure:
		return unsure
	case found && !m.silent:
		return m.refuse(n, "uniqueItems", fmt.Sprintf("items at index %d and %d are equal", earlier, later))
	case found:
		return no
	}
	return yes
}

func (m *matcher) matchContains(n *node, at document.JSON) verdict {
	matches, v := 0, yes
	for _, value := range at.Elements() {
		switch m.try(n.contains, value) {
		case yes:
			matches++
		case unsure:
			return unsure
		}
	}
	if n.minContains >= 0 && matches < n.minContains {
		mark := len(m.found)
		if v = no; !m.silent {
			for i, value := range at.Elements() {
				v = min(v, m.follow(n.contains, document.JSON{}, i, value))
			}
			m.gather(mark, m.newError(n, "minContains", fmt.Sprintf("but got %d", matches)))
		}
	}
	if n.maxContains >= 0 && matches > n.maxContains && m.goesOn(v) {
		v = min(v, m.refuse(n, "maxContains", fmt.Sprintf("but got %d", matches)))
	}
	return v
}

func (m *matcher) matchString(n *node, at document.JSON) verdict {
	v := yes
	body := at.Bytes()
	if n.minLength >= 0 || n.maxLength >= 0 {
		v = m.matchAmount(n, utf8.RuneCount(body), n.minLength, n.maxLength, "minLength", "maxLength")
	}
	if n.pattern != nil && m.goesOn(v) && !n.pattern.Match(body) {
		v = m.refuse(n, "pattern", "pattern")
	}
	if n.format != nil && m.goesOn(v) && !n.format(string(body)) {
		v = m.refuse(n, "format", "format")
	}
	return v
}

func (m *matcher) matchNumber(n *node, at document.JSON) verdict {
	if len(n.bounds) == 0 && n.multipleOf == nil {
		return yes
	}
	v := yes
	is := newNumber(at.Raw())
	for _, b := range n.bounds {
		order := is.compare(b.at)
		if b.above {
			order = -order
		}
		if order < 0 || order == 0 && b.exclusive {
			if v = m.refuse(n, b.keyword, b.keyword); m.silent {
				return v
			}
		}
	}
	if n.multipleOf != nil && !n.isMultiple(&is) {
		v = m.refuse(n, "multipleOf", "multipleOf")
	}
	return v
}

func (n *node) isMultiple(is *number) bool {
	if n.wholeMultiple != 0 && is.isFast() {
		return is.isWhole() && int64(is.f)%n.wholeMultiple == 0
	}
	return new(big.Rat).Quo(is.exact(), n.multipleOf).IsInt()
}

// matchInPlace judges by the schemas that apply to the same value.
func (m *matcher) matchInPlace(n *node, at document.JSON) verdict {
	mark := len(m.found)
	v := m.apply(n.ref, at)
	if len(m.found) > mark {
		m.found[mark] = m.adopt(m.newError(n, "$ref", "$ref"), m.found[mark])
	}
	for _, sub := range n.allOf {
		if !m.goesOn(v) {
			return v
		}
		v = min(v, m.applyUnder(n, sub, sub.path, at))
	}
	if n.not.to != nil && m.goesOn(v) {
		v = min(v, m.matchNot(n, at))
	}
	if len(n.anyOf) > 0 && m.goesOn(v) {
		v = min(v, m.matchAnyOf(n, at))
	}
	if len(n.oneOf) > 0 && m.goesOn(v) {
		v = min(v, m.matchOneOf(n, at))
	}
	if n.condition.to != nil && m.goesOn(v) {
		v = min(v, m.matchCondition(n, at))
	}
	return v
}

// applyUnder is apply with the error under one of a keyword.
func (m *matcher) applyUnder(n *node, sub edge, keyword string, at document.JSON) verdict {
	mark := len(m.found)
	v := m.apply(sub, at)
	if len(m.found) > mark {
		m.gather(mark, m.newError(n, keyword, keyword))
	}
	return v
}

func (m *matcher) matchNot(n *node, at document.JSON) verdict {
	switch m.try(n.not, at) {
	case yes:
		return m.refuse(n, "not", "not")
	case unsure:
		return unsure
	}
	return yes
}

func (m *matcher) matchAnyOf(n *node, at document.JSON) verdict {
	v := no
	for _, sub := range n.anyOf {
		switch m.try(sub, at) {
		case yes:
			return yes
		case unsure:
			v = unsure
		}
	}
	return min(v, m.refuseAll(n, n.anyOf, "anyOf", at))
}

func (m *matcher) matchOneOf(n *node, at document.JSON) verdict {
	matches := 0
	for _, sub := range n.oneOf {
		switch m.try(sub, at) {
		case yes:
			matches++
		case unsure:
			return unsure
		}
	}
	switch matches {
	case 0:
		return m.refuseAll(n, n.oneOf, "oneOf", at)
	case 1:
		return yes
	}
	return m.refuse(n, "oneOf", "oneOf")
}

// refuseAll records that no alternative fits, and why each does not.
func (m *matcher) refuseAll(n *node, list []edge, keyword string, at document.JSON) verdict {
	if m.silent {
		return no
	}
	v, mark := no, len(m.found)
	for _, sub := range list {
		v = min(v, m.apply(sub, at))
	}
	m.gather(mark, m.newError(n, keyword, keyword))
	return v
}

func (m *matcher) matchCondition(n *node, at document.JSON) verdict {
	switch m.try(n.condition, at) {
	case yes:
		return m.applyUnder(n, n.then, "then", at)
	case no:
		return m.applyUnder(n, n.otherwise, "else", at)
	}
	return unsure
}
