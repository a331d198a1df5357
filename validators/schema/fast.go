package schema

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/gavel-mcp/gavel/validators/document"
)

// node is one schema as the recogniser knows it. With a keyword that it does not know it is
// unsure, and the library decides.
type node struct {
	location string // the library's
	unsure   bool
	never    bool // the schema false
	trivial  bool // the schema true

	types          typeSet // 0: any
	enum, constant *constants
	format         func(any) bool
	minLength      int
	maxLength      int
	pattern        *regexp.Regexp
	bounds         []bound
	multipleOf     *big.Rat
	wholeMultiple  int64 // multipleOf, 0 when it is no small whole number

	properties map[string]property
	required   uint64 // a bit per required name
	patterns   []patternProperty
	names      edge
	additional edge
	closed     bool // additionalProperties: false
	minKeys    int
	maxKeys    int

	prefix                   []edge
	items, contains          edge
	minContains, maxContains int
	unique                   bool
	minItems                 int
	maxItems                 int

	ref, not                   edge
	allOf, anyOf, oneOf        []edge
	condition, then, otherwise edge
	inPlace                    bool // has any of the ones above
}

// edge leads from one schema to another. The zero edge leads nowhere, and accepts.
type edge struct {
	to   *node
	path string // in the library's form, such as "properties/a"
}

type property struct {
	edge        // leads nowhere: only required
	bit  uint64 // in node.required, 0 when not required
}

type patternProperty struct {
	edge
	pattern *regexp.Regexp
}

// bound is one limit of a number.
type bound struct {
	keyword   string
	above     bool // numbers above it are refused, else those below
	exclusive bool
	at        limit
}

// constants are the values of enum or const.
type constants struct {
	strings    map[string]bool
	numbers    []limit
	literals   typeSet // null, true and false
	composites []document.JSON
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
	if n, ok := b[s]; ok {
		return n
	}
	n := &node{location: s.Location}
	b[s] = n
	if s.Always != nil {
		n.never, n.trivial = !*s.Always, *s.Always
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

func (b builder) buildEdge(s *jsonschema.Schema, path string) edge {
	if s == nil {
		return edge{}
	}
	return edge{b.buildNode(s), path}
}

func (b builder) buildEdges(list []*jsonschema.Schema, keyword string) []edge {
	out := make([]edge, len(list))
	for i, s := range list {
		out[i] = b.buildEdge(s, keyword+"/"+strconv.Itoa(i))
	}
	return out
}

// hasUnknownKeyword says whether a schema has a keyword that only the library knows.
func hasUnknownKeyword(s *jsonschema.Schema) bool {
	_, tuple := s.Items.([]*jsonschema.Schema)
	return s.RecursiveRef != nil || s.DynamicRef != nil || s.RegexProperties || tuple ||
		len(s.Dependencies) > 0 || len(s.DependentRequired) > 0 || len(s.DependentSchemas) > 0 ||
		s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil ||
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
			if r, ok := new(big.Rat).SetString(string(v)); ok {
				c.numbers = append(c.numbers, newLimit(r))
			}
		default:
			if raw, err := document.Marshal(v); err == nil {
				c.composites = append(c.composites, document.Known(raw))
			}
		}
	}
	return c
}

func (n *node) setNumbers(s *jsonschema.Schema) {
	for _, b := range []struct {
		r *big.Rat
		bound
	}{
		{s.Minimum, bound{keyword: "minimum"}},
		{s.ExclusiveMinimum, bound{keyword: "exclusiveMinimum", exclusive: true}},
		{s.Maximum, bound{keyword: "maximum", above: true}},
		{s.ExclusiveMaximum, bound{keyword: "exclusiveMaximum", above: true, exclusive: true}},
	} {
		if b.r != nil {
			b.at = newLimit(b.r)
			n.bounds = append(n.bounds, b.bound)
		}
	}
	if n.multipleOf = s.MultipleOf; n.multipleOf != nil && n.multipleOf.IsInt() && n.multipleOf.Num().IsInt64() {
		n.wholeMultiple = n.multipleOf.Num().Int64()
	}
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
		n.properties[name] = property{edge: b.buildEdge(sub, "properties/"+escapeLocation(name))}
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
		n.patterns = append(n.patterns, patternProperty{b.buildEdge(sub, "patternProperties/"+escapeLocation(pattern.String())), pattern})
	}
	n.names = b.buildEdge(s.PropertyNames, "propertyNames")
	switch additional := s.AdditionalProperties.(type) {
	case bool:
		n.closed = !additional
	case *jsonschema.Schema:
		n.additional = b.buildEdge(additional, "additionalProperties")
	}
}

func (b builder) buildArray(n *node, s *jsonschema.Schema) {
	n.minItems, n.maxItems, n.unique = s.MinItems, s.MaxItems, s.UniqueItems
	n.prefix = b.buildEdges(s.PrefixItems, "prefixItems")
	n.items = b.buildEdge(s.Items2020, "items")
	if items, ok := s.Items.(*jsonschema.Schema); ok {
		n.items = b.buildEdge(items, "items")
	}
	n.contains, n.minContains, n.maxContains = b.buildEdge(s.Contains, "contains"), s.MinContains, s.MaxContains
}

func (b builder) buildApplicators(n *node, s *jsonschema.Schema) {
	n.ref, n.not = b.buildEdge(s.Ref, "$ref"), b.buildEdge(s.Not, "not")
	n.allOf, n.anyOf, n.oneOf = b.buildEdges(s.AllOf, "allOf"), b.buildEdges(s.AnyOf, "anyOf"), b.buildEdges(s.OneOf, "oneOf")
	n.condition, n.then, n.otherwise = b.buildEdge(s.If, "if"), b.buildEdge(s.Then, "then"), b.buildEdge(s.Else, "else")
	n.inPlace = n.ref.to != nil || n.not.to != nil || n.condition.to != nil || len(n.allOf)+len(n.anyOf)+len(n.oneOf) > 0
}
