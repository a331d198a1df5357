package chain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Condition is true or false of what a run has so far: a comparison of two operands, one operand
// that is true or false, or a script.
type Condition struct {
	left, right template
	operator    string // "" for one operand
	// Script is an expression over data, the run's variables and outputs; "" for none.
	Script string
	text   string
}

// String is the condition as it was written.
func (c *Condition) String() string { return c.text }

// The operators, longest first where one begins another.
var operators = []string{"==", "!=", "<=", ">=", "<", ">", "contains"}

var conditionPattern = sync.OnceValue(func() *regexp.Regexp {
	operand := `(\{\{[^{}]*\}\}|'[^']*'|"[^"]*"|-?[0-9][0-9.eE+-]*|true|false|null)`
	return regexp.MustCompile(`^\s*` + operand + `\s*(?:(==|!=|<=|>=|<|>|\bcontains\b)\s*` + operand + `)?\s*$`)
})

// parseCondition reads a condition that is not a script.
func parseCondition(text string) (*Condition, error) {
	m := conditionPattern().FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("the condition must be {{path}}, or two of {{path}}, 'text', a number, true, false and null with one of %s between them; anything more is a script: {\"script\": \"data.check.output > 3 && data.variables.input.strict\"}",
			strings.Join(operators, " "))
	}
	c := &Condition{operator: m[2], text: text}
	var err error
	if c.left, err = parseOperand(m[1]); err != nil {
		return nil, err
	}
	if c.operator != "" {
		if c.right, err = parseOperand(m[3]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func parseOperand(text string) (template, error) {
	switch text[0] {
	case '{':
		t, err := parseText(text)
		if _, one := t.(whole); err == nil && !one {
			err = fmt.Errorf("%s is not a reference", text)
		}
		return t, err
	case '\'', '"':
		return literal{text[1 : len(text)-1]}, nil
	}
	raw, err := document.ReadJSON([]byte(text), document.Limits{})
	if err != nil {
		return nil, fmt.Errorf("%s is not a number", text)
	}
	return literal{decodeJSON(raw.Raw())}, nil
}

// visit calls f for every reference of the condition; a script has none.
func (c *Condition) visit(f func(reference)) {
	for _, t := range []template{c.left, c.right} {
		if t != nil {
			t.visit(f)
		}
	}
}

// holds compares. It is not for scripts.
func (c *Condition) holds(find lookup) (bool, error) {
	left, err := c.left.fill(find)
	if err != nil {
		return false, err
	}
	if c.operator == "" {
		b, ok := left.(bool)
		if !ok {
			return false, fmt.Errorf("%s is %s, and a condition without a comparison needs true or false", c.text, describeKind(left))
		}
		return b, nil
	}
	right, err := c.right.fill(find)
	if err != nil {
		return false, err
	}
	switch c.operator {
	case "==":
		return equalValues(left, right), nil
	case "!=":
		return !equalValues(left, right), nil
	case "contains":
		return containsValue(left, right)
	}
	order, err := compareValues(left, right)
	if err != nil {
		return false, err
	}
	return map[string]bool{"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[c.operator], nil
}

func equalValues(a, b any) bool {
	if x, ok := readNumber(a); ok {
		y, ok := readNumber(b)
		return ok && x.Cmp(y) == 0
	}
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equalValues(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k := range a {
			if other, ok := b[k]; !ok || !equalValues(a[k], other) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

// readNumber reads a number exactly. One that no float64 can hold is none: written out, it could
// take any memory.
func readNumber(v any) (*big.Rat, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return nil, false
	}
	if f, err := n.Float64(); err != nil || f == 0 && strings.ContainsAny(string(n), "eE") {
		return nil, false
	}
	return new(big.Rat).SetString(string(n))
}

func compareValues(a, b any) (int, error) {
	if x, ok := readNumber(a); ok {
		if y, ok := readNumber(b); ok {
			return x.Cmp(y), nil
		}
	}
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	}
	return 0, fmt.Errorf("%s and %s have no order; compare two numbers or two texts", describeKind(a), describeKind(b))
}

// containsValue looks for a text in a text, an element in a list, or a key in an object.
func containsValue(in, what any) (bool, error) {
	switch in := in.(type) {
	case string:
		text, ok := what.(string)
		if !ok {
			raw, err := document.Marshal(what)
			if err != nil {
				return false, err
			}
			text = string(bytes.TrimSpace(raw))
		}
		return strings.Contains(in, text), nil
	case []any:
		for _, item := range in {
			if equalValues(item, what) {
				return true, nil
			}
		}
		return false, nil
	case map[string]any:
		key, ok := what.(string)
		_, found := in[key]
		return ok && found, nil
	}
	return false, fmt.Errorf("%s cannot contain anything; contains looks into a text, a list or the keys of an object", describeKind(in))
}
