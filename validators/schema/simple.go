package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// references holds the keywords that point to another schema.
var references = map[string]bool{"$ref": true, "$dynamicRef": true, "$recursiveRef": true}

// keywordPlace is the part of a value to which a keyword applies its schemas. Keywords without a place have no
// schema in their value (enum, const, default, examples, ...), or are unknown and not applied.
type keywordPlace uint8

const (
	inPlace  keywordPlace = iota + 1 // the value itself
	oneOfTwo                         // the value itself; only one of then and else applies
	within                           // a member or element, in addition to all others of its kind
	instead                          // a member or element, at most one of its kind for each value
)

var keywordPlaces = map[string]keywordPlace{
	"allOf": inPlace, "anyOf": inPlace, "oneOf": inPlace, "not": inPlace, "if": inPlace, "dependentSchemas": inPlace, "dependencies": inPlace,
	"then": oneOfTwo, "else": oneOfTwo,
	"patternProperties": within, "propertyNames": within, "contains": within, "unevaluatedProperties": within, "unevaluatedItems": within, "contentSchema": within,
	"properties": instead, "additionalProperties": instead, "items": instead, "prefixItems": instead, "additionalItems": instead,
}

// named holds the keywords whose value is an object of schemas by name.
var named = map[string]bool{"properties": true, "patternProperties": true, "dependentSchemas": true, "dependencies": true}

const (
	// simpleLoad is how many times a simple schema may visit one value.
	simpleLoad = 64
	// simpleEnum is the maximum number of constants in one enum.
	simpleEnum = 256
	// simpleTargets is the maximum number of distinct reference targets.
	simpleTargets = 256
)

// Simple reports whether the time to check a document is bounded by a small multiple of the lengths of the
// schema and the document. If there is a sandbox, only simple schemas of operators run in the gateway's own
// process.
func Simple(raw json.RawMessage) bool { return FindCost(raw) == "" }

// FindCost returns why a schema is not [Simple], as a clause that begins with "it", or "" if it is. A
// simple schema has no recursive or dynamic reference and no long list of constants. With references
// followed, it applies at most simpleLoad schemas to any one value. The analysis is syntactic, so it may
// reject a harmless schema. Invalid JSON is not simple.
func FindCost(raw json.RawMessage) string {
	doc, err := readJSON(raw)
	if err != nil {
		return "it is not JSON"
	}
	if path, found := findHugeNumber(doc); found {
		return "it has a number with a huge exponent at " + namePath(path)
	}
	if isTooDeep(doc, maxDepth) {
		return fmt.Sprintf("it is nested more than %d deep", maxDepth)
	}
	a := analysis{root: doc.Any(), known: map[string]load{}, open: map[string]bool{}, id: "$id"}
	if dialect := doc.Get("$schema"); strings.Contains(dialect.Text(), "draft-04") {
		a.id = "id"
	}
	a.addSchema(a.root, "")
	return a.why
}

// load counts how often a schema visits the value itself (here), and any one value below it (below).
type load struct{ here, below int }

// analysis computes the load of a schema. It analyses each reference target only once, so its time is linear
// in the length of the schema.
type analysis struct {
	root  any
	id    string
	known map[string]load
	open  map[string]bool // the targets that are being analysed
	why   string          // the first reason why the schema is not simple
}

// refuse records a reason, unless there is one already.
func (a *analysis) refuse(format string, args ...any) load {
	if a.why == "" {
		a.why = fmt.Sprintf(format, args...)
	}
	return load{}
}

// addSchema returns the load of the schema at a path.
func (a *analysis) addSchema(v any, path string) load {
	s, ok := v.(map[string]any)
	if !ok || a.why != "" {
		return load{here: 1} // true, false, or a value that is not applied
	}
	if _, renamed := s[a.id].(string); renamed && path != "" {
		return a.refuse("it sets its own base address at %s", namePath(path+"/"+a.id))
	}
	if list, _ := s["enum"].([]any); len(list) > simpleEnum {
		return a.refuse("it lists more than %d constants at %s", simpleEnum, namePath(path+"/enum"))
	}
	sum := load{here: 1}
	either, single := load{}, 0
	for _, keyword := range sortedKeys(s) {
		for _, sub := range a.listSchemas(keyword, s[keyword], path+"/"+escapeToken(keyword)) {
			switch keywordPlaces[keyword] {
			case inPlace:
				sum.here, sum.below = sum.here+sub.here, sum.below+sub.below
			case oneOfTwo:
				either.here, either.below = max(either.here, sub.here), max(either.below, sub.below)
			case within:
				sum.below += max(sub.here, sub.below)
			case instead:
				single = max(single, sub.here, sub.below)
			}
		}
	}
	if s["uniqueItems"] == true {
		sum.below++ // whole items are compared
	}
	for keyword := range references {
		if s[keyword] != nil {
			target := a.followReference(keyword, s[keyword], path+"/"+keyword)
			sum.here, sum.below = sum.here+target.here, sum.below+target.below
		}
	}
	sum.here, sum.below = sum.here+either.here, sum.below+either.below+single
	if max(sum.here, sum.below) > simpleLoad {
		return a.refuse("its branches check one value more than %d times at %s", simpleLoad, namePath(path))
	}
	return sum
}

// listSchemas returns the loads of a keyword's schemas.
func (a *analysis) listSchemas(keyword string, v any, path string) (out []load) {
	if keywordPlaces[keyword] == 0 {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		if !named[keyword] {
			return []load{a.addSchema(v, path)}
		}
		for _, name := range sortedKeys(v) {
			out = append(out, a.addSchema(v[name], path+"/"+escapeToken(name)))
		}
	case []any:
		for i, sub := range v {
			out = append(out, a.addSchema(sub, path+"/"+strconv.Itoa(i)))
		}
	}
	return out
}

// followReference returns the load of a reference's target, which must be in the document.
func (a *analysis) followReference(keyword string, v any, path string) load {
	ref, _ := v.(string)
	if keyword != "$ref" || ref != "#" && !strings.HasPrefix(ref, "#/") {
		return a.refuse("its %s does not point into the schema (#/...) at %s", keyword, namePath(path))
	}
	to := decodeLocation(ref[1:])
	known, seen := a.known[to]
	switch {
	case a.open[to] || strings.HasPrefix(path, to+"/"):
		return a.refuse("it refers to itself at %s", namePath(path))
	case seen:
		return known
	case len(a.known) == simpleTargets:
		return a.refuse("it has more than %d different reference targets", simpleTargets)
	}
	target := findPointer(a.root, to)
	if _, nothing := target.(missing); nothing {
		return a.refuse("its reference has no target at %s", namePath(path))
	}
	a.open[to], a.known[to] = true, load{}
	a.known[to] = a.addSchema(target, to)
	delete(a.open, to)
	return a.known[to]
}
