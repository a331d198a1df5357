package schema

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// node is one schema as the recogniser knows it. Anything uncertain makes it unsure, and
// the library decides.
type node struct {
	unsure bool // has a keyword that the recogniser does not know
	never  bool // the schema false
	trivia bool // the schema true, or one without any keyword known here

	types      typeSet // 0: any
	enum       *constants
	constant   *constants
	format     func(any) bool
	minLength  int
	maxLength  int
	pattern    *regexp.Regexp
	numeric    bool // has a bound below
	min, max   bound
	multipleOf int64 // 0: none

	properties map[string]property
	required   uint64 // a bit per required name
	patterns   []patternProperty
	names      *node
	additional *node
	closed     bool // additionalProperties: false
	minKeys    int
	maxKeys    int

	prefix   []*node
	items    *node
	minItems int
	maxItems int

	ref                 *node
	allOf, anyOf, oneOf []*node
	not                 *node
	condition           *node
	then, otherwise     *node
	inPlace             bool // has any of the ones above
}

type property struct {
	schema *node  // nil: only required
	bit    uint64 // in node.required, 0 when not required
}

type patternProperty struct {
	pattern *regexp.Regexp
	schema  *node
}

// bound is a limit of a number that a float64 holds exactly.
type bound struct {
	set, exclusive bool
	at             float64
}

// constants are the values of enum or const. Objects and arrays are not kept.
type constants struct {
	strings   map[string]bool
	numbers   []float64
	literals  typeSet // null, true and false
	composite bool    // there was an object, an array or an awkward number
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
	isBoolean = isTrue | isFalse
)

var typeSets = map[string]typeSet{
	"null": isNull, "boolean": isBoolean, "number": isNumber | isInteger, "integer": isInteger,
	"string": isString, "array": isArray, "object": isObject,
}

func newRecogniser(s *jsonschema.Schema) *node {
	return builder{}.buildNode(s)
}

type builder map[*jsonschema.Schema]*node

func (b builder) buildNode(s *jsonschema.Schema) *node {
	if s == nil {
		return nil
	}
	if n, ok := b[s]; ok {
		return n
	}
	n := &node{}
	b[s] = n
	if s.Always != nil {
		n.never, n.trivia = !*s.Always, *s.Always
		return n
	}
	n.unsure = hasUnknownKeyword(s)
	n.setValues(s)
	n.setNumbers(s)
	b.buildObject(n, s)
	b.buildArray(n, s)
	b.buildApplicators(n, s)
	return n
}

func (b builder) buildNodes(list []*jsonschema.Schema) []*node {
	out := make([]*node, len(list))
	for i, s := range list {
		out[i] = b.buildNode(s)
	}
	return out
}

// hasUnknownKeyword says whether a schema has a keyword that only the library knows.
func hasUnknownKeyword(s *jsonschema.Schema) bool {
	_, tuple := s.Items.([]*jsonschema.Schema)
	return s.RecursiveRef != nil || s.DynamicRef != nil || s.RegexProperties || tuple ||
		len(s.Dependencies) > 0 || len(s.DependentRequired) > 0 || len(s.DependentSchemas) > 0 ||
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
	c := &constants{strings: map[string]bool{}}
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			c.literals |= isNull
		case bool:
			if v {
				c.literals |= isTrue
			} else {
				c.literals |= isFalse
			}
		case string:
			c.strings[v] = true
		case json.Number:
			r, ok := new(big.Rat).SetString(string(v))
			f, kept := float64(0), false
			if ok {
				f, kept = convertExactly(r)
			}
			if kept {
				c.numbers = append(c.numbers, f)
			} else {
				c.composite = true
			}
		default:
			c.composite = true
		}
	}
	return c
}

func (n *node) setNumbers(s *jsonschema.Schema) {
	for _, b := range []struct {
		r         *big.Rat
		to        *bound
		exclusive bool
	}{{s.Minimum, &n.min, false}, {s.ExclusiveMinimum, &n.min, true}, {s.Maximum, &n.max, false}, {s.ExclusiveMaximum, &n.max, true}} {
		if b.r == nil {
			continue
		}
		f, kept := convertExactly(b.r)
		if !kept || b.to.set { // or both kinds at once
			n.unsure = true
		}
		*b.to = bound{set: true, exclusive: b.exclusive, at: f}
		n.numeric = true
	}
	if s.MultipleOf != nil {
		if n.numeric = true; s.MultipleOf.IsInt() && s.MultipleOf.Num().IsInt64() {
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
	if len(s.Required) > 64 {
		n.unsure = true
		return
	}
	if len(s.Properties)+len(s.Required) > 0 {
		n.properties = make(map[string]property, len(s.Properties))
	}
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
	for pattern, sub := range s.PatternProperties {
		n.patterns = append(n.patterns, patternProperty{pattern, b.buildNode(sub)})
	}
	n.names = b.buildNode(s.PropertyNames)
	switch additional := s.AdditionalProperties.(type) {
	case bool:
		n.closed = !additional
	case *jsonschema.Schema:
		n.additional = b.buildNode(additional)
	}
}

func (b builder) buildArray(n *node, s *jsonschema.Schema) {
	n.minItems, n.maxItems = s.MinItems, s.MaxItems
	n.prefix = b.buildNodes(s.PrefixItems)
	n.items = b.buildNode(s.Items2020)
	if items, ok := s.Items.(*jsonschema.Schema); ok {
		n.items = b.buildNode(items)
	}
}

func (b builder) buildApplicators(n *node, s *jsonschema.Schema) {
	n.ref, n.not = b.buildNode(s.Ref), b.buildNode(s.Not)
	n.allOf, n.anyOf, n.oneOf = b.buildNodes(s.AllOf), b.buildNodes(s.AnyOf), b.buildNodes(s.OneOf)
	n.condition, n.then, n.otherwise = b.buildNode(s.If), b.buildNode(s.Then), b.buildNode(s.Else)
	n.inPlace = n.ref != nil || n.not != nil || n.condition != nil || len(n.allOf)+len(n.anyOf)+len(n.oneOf) > 0
}
