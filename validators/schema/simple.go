package schema

import (
	"encoding/json"
	"strings"
)

// references are the keywords that point to another schema.
var references = map[string]bool{"$ref": true, "$dynamicRef": true, "$recursiveRef": true}

// Where schemas stand in a schema: directly, in a list, or by name. What is not
// listed holds no schema (enum, const, default, examples, ...), or is unknown and
// not applied.
var (
	single = map[string]bool{
		"additionalProperties": true, "propertyNames": true, "items": true, "additionalItems": true,
		"not": true, "if": true, "then": true, "else": true, "contains": true,
		"unevaluatedProperties": true, "unevaluatedItems": true, "contentSchema": true,
	}
	listed = map[string]bool{"allOf": true, "anyOf": true, "oneOf": true, "items": true, "prefixItems": true}
	byName = map[string]bool{"properties": true, "patternProperties": true, "dependentSchemas": true, "dependencies": true}
)

// applicators apply a schema to the value that another one is applied to. One
// within another multiplies the work: every branch is tried at every level.
var applicators = map[string]bool{
	"allOf": true, "anyOf": true, "oneOf": true, "not": true, "if": true, "then": true, "else": true,
	"dependentSchemas": true, "dependencies": true, "contains": true,
	"unevaluatedProperties": true, "unevaluatedItems": true,
}

// Bounds within which a schema is simple: what is beyond them multiplies with
// the length of the document.
const (
	simpleBranches = 32
	simplePatterns = 16
	simpleEnum     = 256
	simpleRefs     = 64
)

// Simple reports whether the time to check a document against a schema is bounded
// by a small multiple of their lengths: no applicator within another, no recursive
// or dynamic reference, no uniqueItems (which compares pairs), no long lists of
// branches, patterns or constants. Only such schemas, and only an operator's, may
// run in the gateway's own process. It is a matter of form and may say no to a
// schema that is harmless; raw that does not decode is not simple.
func Simple(raw json.RawMessage) bool {
	root, err := decodeJSON(raw)
	if err != nil {
		return false
	}
	if _, found := findHugeNumber(root, ""); found || isTooDeep(root, maxDepth) {
		return false
	}
	a := analysis{root: root}
	return a.isSimple(root, 0)
}

type analysis struct {
	root any
	// open are the references being followed; total counts all that were.
	open  []string
	total int
}

// isSimple checks one schema nested in that many applicators.
func (a *analysis) isSimple(v any, within int) bool {
	s, ok := v.(map[string]any)
	if !ok {
		return true // true and false, or nothing that is applied
	}
	if _, renamed := s["$id"]; renamed && len(a.open)+within > 0 {
		return false
	}
	if s["uniqueItems"] == true || s["$dynamicRef"] != nil || s["$recursiveRef"] != nil || !hasShortLists(s) {
		return false
	}
	for keyword, sub := range s {
		depth := within
		if applicators[keyword] {
			if depth++; depth > 1 {
				return false
			}
		}
		if !a.checkKeyword(keyword, sub, depth) {
			return false
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		return a.followReference(ref, s, within)
	}
	return true
}

// checkKeyword reports whether the schemas of a keyword are simple.
func (a *analysis) checkKeyword(keyword string, v any, within int) bool {
	switch v := v.(type) {
	case map[string]any:
		if single[keyword] {
			return a.isSimple(v, within)
		}
		if byName[keyword] {
			for _, sub := range v {
				if !a.isSimple(sub, within) {
					return false
				}
			}
		}
	case []any:
		if listed[keyword] {
			for _, sub := range v {
				if !a.isSimple(sub, within) {
					return false
				}
			}
		}
	}
	return true
}

// followReference follows a $ref within the document. Beside keywords that hold schemas
// it is one more branch over the same value, so it counts as an applicator.
func (a *analysis) followReference(ref string, beside map[string]any, within int) bool {
	for keyword := range beside {
		if single[keyword] || listed[keyword] || byName[keyword] {
			if within++; within > 1 {
				return false
			}
			break
		}
	}
	if !strings.HasPrefix(ref, "#/") {
		return false // the root itself, an anchor or another document
	}
	for _, open := range a.open {
		if open == ref {
			return false
		}
	}
	if a.total++; a.total > simpleRefs {
		return false
	}
	target := findPointer(a.root, decodeLocation(ref[1:]))
	if _, nothing := target.(missing); nothing {
		return false
	}
	a.open = append(a.open, ref)
	ok := a.isSimple(target, within)
	a.open = a.open[:len(a.open)-1]
	return ok
}

// hasShortLists reports whether branches, patterns and constants are within bounds.
func hasShortLists(s map[string]any) bool {
	branches := 0
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := s[keyword].([]any)
		branches += len(list)
	}
	for _, keyword := range []string{"dependentSchemas", "dependencies"} {
		named, _ := s[keyword].(map[string]any)
		branches += len(named)
	}
	patterns, _ := s["patternProperties"].(map[string]any)
	enum, _ := s["enum"].([]any)
	return branches <= simpleBranches && len(patterns) <= simplePatterns && len(enum) <= simpleEnum
}
