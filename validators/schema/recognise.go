package schema

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/gavel-mcp/gavel/validators/document"
)

// node is one schema as the recogniser knows it. It says yes only where that is certain;
// to anything else the library has the answer.
type node struct {
	unsure bool // false, or with a keyword that the recogniser does not know

	types      typeSet // 0: any
	enum       *constants
	constant   *constants
	format     func(any) bool
	minLength  int
	maxLength  int
	pattern    *regexp.Regexp
	min, max   *bound
	multipleOf int64 // 0: none

	properties map[string]property
	required   uint64 // a bit per required name
	additional *node
	closed     bool // additionalProperties: false
	minKeys    int
	maxKeys    int

	items    *node
	minItems int
	maxItems int

	allOf []*node // $ref included
	anyOf []*node
}

type property struct {
	schema *node  // nil: only required
	bit    uint64 // in node.required, 0 when not required
}

// bound is a limit of a number that a float64 holds exactly.
type bound struct {
	exclusive bool
	at        float64
}

// constants are the values of enum or const that can be recognised.
type constants struct {
	strings  map[string]bool
	numbers  map[float64]bool
	literals typeSet // null, true and false
}

type typeSet uint16

const (
	isNull typeSet = 1 << iota
	isTrue
	isFalse
	isNumber
	isInteger
	isString
	isArray
	isObject
)

var typeSets = map[string]typeSet{
	"null": isNull, "boolean": isTrue | isFalse, "number": isNumber | isInteger, "integer": isInteger,
	"string": isString, "array": isArray, "object": isObject,
}

// newRecogniser returns the node of a schema, made once for each that refers to it.
func newRecogniser(s *jsonschema.Schema) *node { return builder{}.buildNode(s) }

type builder map[*jsonschema.Schema]*node

func (b builder) buildNode(s *jsonschema.Schema) *node {
	if s == nil {
		return nil
	}
	if n, ok := b[s]; ok {
		return n
	}
	n := &node{minKeys: -1, maxKeys: -1, minItems: -1, maxItems: -1, minLength: -1, maxLength: -1}
	b[s] = n
	if s.Always != nil {
		n.unsure = !*s.Always
		return n
	}
	n.unsure = hasUnknownKeyword(s)
	n.setValues(s)
	n.setNumbers(s)
	b.buildObject(n, s)
	n.minItems, n.maxItems, n.items = s.MinItems, s.MaxItems, b.buildNode(s.Items2020)
	if items, ok := s.Items.(*jsonschema.Schema); ok {
		n.items = b.buildNode(items)
	}
	if s.Ref != nil {
		n.allOf = append(n.allOf, b.buildNode(s.Ref))
	}
	for _, sub := range s.AllOf {
		n.allOf = append(n.allOf, b.buildNode(sub))
	}
	for _, sub := range s.AnyOf {
		n.anyOf = append(n.anyOf, b.buildNode(sub))
	}
	return n
}

// hasUnknownKeyword says whether a schema has a keyword that is left to the library.
func hasUnknownKeyword(s *jsonschema.Schema) bool {
	_, tuple := s.Items.([]*jsonschema.Schema)
	return s.RecursiveRef != nil || s.DynamicRef != nil || s.RegexProperties || tuple || len(s.PrefixItems) > 0 ||
		s.Not != nil || s.If != nil || len(s.OneOf) > 0 || len(s.PatternProperties) > 0 || s.PropertyNames != nil ||
		len(s.Dependencies) > 0 || len(s.DependentRequired) > 0 || len(s.DependentSchemas) > 0 || len(s.Required) > 64 ||
		s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil || s.UniqueItems || s.Contains != nil ||
		s.ContentEncoding != "" || s.ContentMediaType != "" || len(s.Extensions) > 0
}

func (n *node) setValues(s *jsonschema.Schema) {
	for _, t := range s.Types {
		n.types |= typeSets[t]
	}
	n.enum, n.constant = newConstants(s.Enum), newConstants(s.Constant)
	n.minLength, n.maxLength, n.pattern = s.MinLength, s.MaxLength, s.Pattern
	if s.Format != "" {
		n.format = jsonschema.Formats[s.Format] // all of them let other types pass
	}
}

func newConstants(values []any) *constants {
	if len(values) == 0 {
		return nil
	}
	c := &constants{strings: map[string]bool{}, numbers: map[float64]bool{}}
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			c.literals |= isNull
		case bool:
			c.literals |= map[bool]typeSet{true: isTrue, false: isFalse}[v]
		case string:
			c.strings[v] = true
		case json.Number:
			if r, ok := new(big.Rat).SetString(string(v)); ok {
				if f, exact := convertExactly(r); exact {
					c.numbers[f] = true
				}
			}
		}
	}
	return c
}

func (n *node) setNumbers(s *jsonschema.Schema) {
	for _, b := range []struct {
		r         *big.Rat
		to        **bound
		exclusive bool
	}{{s.Minimum, &n.min, false}, {s.ExclusiveMinimum, &n.min, true}, {s.Maximum, &n.max, false}, {s.ExclusiveMaximum, &n.max, true}} {
		if b.r == nil {
			continue
		}
		f, exact := convertExactly(b.r)
		n.unsure = n.unsure || !exact || *b.to != nil // or both kinds at once
		*b.to = &bound{exclusive: b.exclusive, at: f}
	}
	if s.MultipleOf != nil {
		if s.MultipleOf.IsInt() && s.MultipleOf.Num().IsInt64() {
			n.multipleOf = s.MultipleOf.Num().Int64()
		} else {
			n.unsure = true
		}
	}
}

// convertExactly reports whether a number is the decimal value of the shortest form of a
// float64. Among such numbers, and those with at most 15 digits, floats compare as
// the decimals do: each has its own float.
func convertExactly(r *big.Rat) (float64, bool) {
	f, _ := r.Float64()
	shortest, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'e', -1, 64))
	return f, ok && shortest.Cmp(r) == 0
}

func (b builder) buildObject(n *node, s *jsonschema.Schema) {
	n.minKeys, n.maxKeys = s.MinProperties, s.MaxProperties
	n.properties = make(map[string]property, len(s.Properties))
	for name, sub := range s.Properties {
		n.properties[name] = property{schema: b.buildNode(sub)}
	}
	for i, name := range s.Required {
		p := n.properties[name]
		if p.bit == 0 { // a name may be listed twice
			p.bit = 1 << i
			n.required |= p.bit
		}
		n.properties[name] = p
	}
	switch additional := s.AdditionalProperties.(type) {
	case bool:
		n.closed = !additional
	case *jsonschema.Schema:
		n.additional = b.buildNode(additional)
	}
}

// accepts reports whether a document certainly conforms.
func (n *node) accepts(doc document.JSON) bool {
	r := recogniser{steps: maxSteps}
	return r.acceptsValue(n, doc, 0)
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

// recogniser reads a document once, and once more for each schema applied in place.
type recogniser struct{ steps int }

// acceptsValue judges one value; nil accepts any.
func (r *recogniser) acceptsValue(n *node, at document.JSON, depth int) bool {
	if n == nil {
		n = anything
	}
	if r.steps--; r.steps < 0 || depth > maxNesting || n.unsure || !r.acceptsKind(n, at, depth) {
		return false
	}
	for _, sub := range n.allOf {
		if !r.acceptsValue(sub, at, depth+1) {
			return false
		}
	}
	for _, sub := range n.anyOf {
		if r.acceptsValue(sub, at, depth+1) {
			return true
		}
	}
	return len(n.anyOf) == 0
}

// anything accepts every value.
var anything = newRecogniser(&jsonschema.Schema{MinLength: -1, MaxLength: -1, MinItems: -1, MaxItems: -1, MinProperties: -1, MaxProperties: -1})

// acceptsKind judges by the keywords for the kind of the value.
func (r *recogniser) acceptsKind(n *node, at document.JSON, depth int) bool {
	switch at.Kind() {
	case document.Object:
		return r.acceptsObject(n, at, depth)
	case document.Array:
		return r.acceptsArray(n, at, depth)
	case document.String:
		return n.acceptsString(at.Bytes())
	case document.Number:
		return n.acceptsNumber(string(at.Raw()))
	case document.True:
		return n.acceptsLiteral(isTrue)
	case document.False:
		return n.acceptsLiteral(isFalse)
	case document.Null:
		return n.acceptsLiteral(isNull)
	}
	return false
}

func (n *node) acceptsLiteral(t typeSet) bool {
	return n.acceptsType(t) && (n.enum == nil || n.enum.literals&t != 0) && (n.constant == nil || n.constant.literals&t != 0)
}

func (n *node) acceptsType(t typeSet) bool { return n.types == 0 || n.types&t != 0 }

func (r *recogniser) acceptsObject(n *node, at document.JSON, depth int) bool {
	if !n.acceptsType(isObject) || n.enum != nil || n.constant != nil { // only the library compares objects
		return false
	}
	var seen uint64
	keys := 0
	for name, value := range at.Members() {
		p := n.properties[string(name.Bytes())]
		sub := p.schema
		if sub == nil {
			if n.closed {
				return false
			}
			sub = n.additional
		}
		if !r.acceptsValue(sub, value, depth+1) {
			return false
		}
		seen |= p.bit
		keys++
	}
	return seen&n.required == n.required && isWithin(keys, n.minKeys, n.maxKeys)
}

func (r *recogniser) acceptsArray(n *node, at document.JSON, depth int) bool {
	if !n.acceptsType(isArray) || n.enum != nil || n.constant != nil {
		return false
	}
	count := 0
	for _, value := range at.Elements() {
		if !r.acceptsValue(n.items, value, depth+1) {
			return false
		}
		count++
	}
	return isWithin(count, n.minItems, n.maxItems)
}

func isWithin(n, least, most int) bool {
	return (least < 0 || n >= least) && (most < 0 || n <= most)
}

func (n *node) acceptsString(text []byte) bool {
	return n.acceptsType(isString) &&
		(n.minLength < 0 && n.maxLength < 0 || isWithin(utf8.RuneCount(text), n.minLength, n.maxLength)) &&
		(n.enum == nil || n.enum.strings[string(text)]) && (n.constant == nil || n.constant.strings[string(text)]) &&
		(n.pattern == nil || n.pattern.Match(text)) && (n.format == nil || n.format(string(text)))
}

func (n *node) acceptsNumber(literal string) bool {
	exponent := strings.IndexAny(literal, "eE")
	whole := exponent < 0 && !strings.Contains(literal, ".") // 1.0 is an integer, too: the library says so
	switch {
	case exponent >= 0 && len(strings.TrimLeft(literal[exponent+1:], "+-")) > 3: // refused elsewhere
		return false
	case !n.acceptsType(isNumber) && !(n.acceptsType(isInteger) && whole):
		return false
	case n.enum == nil && n.constant == nil && n.min == nil && n.max == nil && n.multipleOf == 0:
		return true
	case exponent >= 0 || len(literal)-strings.Count(literal, ".")-strings.Count(literal, "-") > exactDigits:
		return false
	}
	f, err := strconv.ParseFloat(literal, 64)
	return err == nil &&
		(n.enum == nil || n.enum.numbers[f]) && (n.constant == nil || n.constant.numbers[f]) &&
		(n.min == nil || f > n.min.at || f == n.min.at && !n.min.exclusive) &&
		(n.max == nil || f < n.max.at || f == n.max.at && !n.max.exclusive) &&
		(n.multipleOf == 0 || whole && int64(f)%n.multipleOf == 0)
}
