package chain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/gavel-mcp/gavel/validators/schema"
)

func checkKeywords(l *linter) {
	check := func(path string, raw json.RawMessage) {
		for _, wrong := range schema.FindMisspelt(raw) {
			l.addIssue(path+wrong.Path, "%s", wrong.Message)
		}
	}
	check("/inputSchema", l.InputSchema)
	l.visitSteps(func(s *Step) { check(s.path+"/outputSchema", s.OutputSchema) })
}

// The rule about conditions uses pinned output schemas only if they are unambiguous: with alternatives or
// references, a condition may be true.

func checkNeverTrue(l *linter) {
	check := func(path string, c *Condition) {
		if c == nil || c.Script != "" {
			return
		}
		if why := l.explainNever(c); why != "" {
			l.addIssue(path, "this can never be true: %s", why)
		}
	}
	l.visitSteps(func(s *Step) {
		check(s.path+"/until", s.Until)
		for i, c := range s.Cases {
			check(fmt.Sprintf("%s/cases/%d/when", s.path, i), c.When)
		}
	})
	for _, c := range l.Conditionals {
		check(c.path+"/condition", c.Condition)
	}
}

// explainNever returns why a condition can never be true, or "" if it may be.
func (l *linter) explainNever(c *Condition) string {
	if c.operator == "not" {
		return ""
	}
	first := ""
	for _, part := range c.parts {
		why := l.explainNever(part)
		if (why != "") == (c.operator == "and") {
			return why
		}
		first = why
	}
	if len(c.parts) > 0 {
		return first
	}
	sides := [][2]template{{c.left, c.right}}
	if c.operator == "==" {
		sides = append(sides, [2]template{c.right, c.left})
	}
	for _, side := range sides {
		if r, ok := side[0].(whole); ok {
			if why := l.explainOperand(r.reference, c.operator, side[1]); why != "" {
				return why
			}
		}
	}
	return ""
}

// explainOperand returns why a comparison of a reference with another operand can never be true, or "".
func (l *linter) explainOperand(r reference, operator string, other template) string {
	s := l.stepOf(r)
	if s == nil || s.Kind != KindTool || len(s.Keep) > 0 || len(s.handlers()) > 0 || len(r.segments) < 2 || r.segments[1] != "output" {
		return ""
	}
	output := l.options.Servers[s.Server].OutputSchemas[s.Action]
	at, _ := decodeJSON(output).(map[string]any)
	path := r.segments[2:]
	if isWrapper(output) && (len(path) == 0 || path[0] != wrapKey) {
		path = append([]string{wrapKey}, path...)
	}
	from := s.Server + "/" + s.Action
	for _, key := range path {
		var problem string
		if at, problem = enterSchema(at, key); problem != "" {
			return fmt.Sprintf("in the pinned outputSchema of %s, {{%s}} is missing: %s", from, r.text, problem)
		}
	}
	fixed, isFixed := other.(literal)
	_, isText := fixed.value.(string)
	types := schemaTypes(at)
	if len(types) == 0 || other != nil && !isFixed || len(r.segments) == 2 && isText { // it is compared as text
		return ""
	}
	wants := map[string][]string{"": {"boolean"}, "contains": {"string", "array", "object"}, "==": typesOf(fixed.value)}[operator]
	if slices.Contains([]string{"<", "<=", ">", ">="}, operator) {
		wants = typesOf(fixed.value)
	}
	enum, _ := at["enum"].([]any)
	switch {
	case wants != nil && !slices.ContainsFunc(types, func(t string) bool { return slices.Contains(wants, t) }):
		return fmt.Sprintf("in the pinned outputSchema of %s, {{%s}} has the type %s", from, r.text, types[0])
	case operator == "==" && enum != nil && !slices.ContainsFunc(enum, func(v any) bool { return equalValues(v, fixed.value) }):
		return fmt.Sprintf("in the pinned outputSchema of %s, {{%s}} never has that value", from, r.text)
	}
	return ""
}

// enterSchema returns the schema of a member, or nil if unknown. problem reports that the member cannot
// exist.
func enterSchema(at map[string]any, key string) (inner map[string]any, problem string) {
	types := schemaTypes(at)
	if len(types) != 1 {
		return nil, ""
	}
	switch types[0] {
	case "object":
		properties, _ := at["properties"].(map[string]any)
		more, open := at["additionalProperties"]
		inner, _ = properties[key].(map[string]any)
		if _, has := properties[key]; !has && len(properties) > 0 && at["patternProperties"] == nil && (!open || more == false) {
			problem = "the object has no " + quoteName(key) + suggestName(key, slices.Sorted(maps.Keys(properties)))
		}
	case "array":
		inner, _ = at["items"].(map[string]any)
	default:
		problem = "a value of the type " + types[0] + " has no members"
	}
	return inner, problem
}

// schemaTypes returns the types that a schema allows, or nil if it does not restrict them.
func schemaTypes(at map[string]any) (types []string) {
	switch t := at["type"].(type) {
	case string:
		types = []string{t}
	case []any:
		for _, item := range t {
			if text, ok := item.(string); ok {
				types = append(types, text)
			}
		}
	}
	return types
}

// typesOf returns the JSON Schema types that match a value.
func typesOf(v any) []string {
	switch v.(type) {
	case nil:
		return []string{"null"}
	case string:
		return []string{"string"}
	case bool:
		return []string{"boolean"}
	case json.Number:
		return []string{"number", "integer"}
	default:
		return nil
	}
}
