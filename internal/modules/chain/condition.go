package chain

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Condition evaluates to true or false over a run's current values. It is a comparison of two operands, a
// single boolean operand, conditions joined by and, or and not, or a script.
type Condition struct {
	left, right template
	operator    string       // "" for a single operand
	parts       []*Condition // the parts of and, or and not
	// Script is an expression over data, the run's variables and outputs; "" for none.
	Script string
	text   string
}

// String returns the condition as it was written.
func (c *Condition) String() string { return c.text }

// operators lists the operators; an operator comes before its own prefixes.
var operators = []string{"==", "!=", "<=", ">=", "<", ">", "contains"}

var (
	operandPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:\{\{[^{}]*\}\}|'[^']*'|"[^"]*"|-?[0-9][0-9.eE+-]*|(?:true|false|null)\b)`)
	})
	operatorPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:==|!=|<=|>=|<|>|contains\b)`) })
	joinPattern     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:and|or|not)\b|^[()]`) })
)

// maxComparisons limits the comparisons, nots and parentheses in a condition.
const maxComparisons = 100

// parseCondition reads a condition that is not a script.
func parseCondition(text string) (*Condition, error) {
	p := conditionParser{rest: text}
	c, err := p.parseJoined("or")
	switch {
	case err != nil:
		return nil, err
	case c == nil || strings.TrimSpace(p.rest) != "":
		return nil, fmt.Errorf("invalid condition: write {{path}}, or two operands ({{path}}, 'text', a number, true, false or null) with one of %s between them; join several with and, or, not and parentheses; use a script for anything more: {\"script\": \"data.check.output.length > 3\"}",
			strings.Join(operators, " "))
	}
	c.text = text
	return c, nil
}

// conditionParser parses from left to right. Its methods return nil if the text does not match.
type conditionParser struct {
	rest  string
	count int
}

func (p *conditionParser) accept(pattern *regexp.Regexp, want ...string) string {
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	found := pattern.FindString(p.rest)
	if len(want) > 0 && found != want[0] {
		return ""
	}
	p.rest = p.rest[len(found):]
	return found
}

// parseJoined parses conditions that are joined by operator: or, or and.
func (p *conditionParser) parseJoined(operator string) (*Condition, error) {
	next := p.parseOne
	if operator == "or" {
		next = func() (*Condition, error) { return p.parseJoined("and") }
	}
	var parts []*Condition
	for len(parts) == 0 || p.accept(joinPattern(), operator) != "" {
		c, err := next()
		if c == nil || err != nil {
			return nil, err
		}
		parts = append(parts, c)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return &Condition{operator: operator, parts: parts}, nil
}

// parseOne parses a comparison, a single operand, a negation or a parenthesised condition.
func (p *conditionParser) parseOne() (c *Condition, err error) {
	if p.count++; p.count > maxComparisons {
		return nil, fmt.Errorf("the condition has more than %d comparisons; write a script", maxComparisons)
	}
	switch {
	case p.accept(joinPattern(), "not") != "":
		if c, err = p.parseOne(); c == nil || err != nil {
			return nil, err
		}
		return &Condition{operator: "not", parts: []*Condition{c}}, nil
	case p.accept(joinPattern(), "(") != "":
		if c, err = p.parseJoined("or"); p.accept(joinPattern(), ")") == "" {
			return nil, err
		}
		return c, err
	}
	left := p.accept(operandPattern())
	if left == "" {
		return nil, nil //nolint:nilnil // not a condition: the caller reports it
	}
	c = &Condition{text: left, operator: p.accept(operatorPattern())}
	if c.left, err = parseOperand(left); err != nil {
		return nil, err
	}
	if c.operator != "" {
		right := p.accept(operandPattern())
		if right == "" {
			return nil, nil //nolint:nilnil // no comparison
		}
		c.text += " " + c.operator + " " + right
		if c.right, err = parseOperand(right); err != nil {
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

// visit calls f for every reference in the condition; a script has none. c may be nil.
func (c *Condition) visit(f func(reference)) {
	if c == nil {
		return
	}
	for _, t := range []template{c.left, c.right} {
		if t != nil {
			t.visit(f, nil)
		}
	}
	for _, part := range c.parts {
		part.visit(f)
	}
}

// fillOperand returns the value of an operand; a reference to a whole output keeps its text.
func fillOperand(t template, find lookup) (any, error) {
	if one, ok := t.(whole); ok {
		return find(one.reference)
	}
	return t.fill(find)
}

// comparisonValue returns the value of v to compare with other: an output with text is compared as that text if
// other is a string.
func comparisonValue(v, other any) any {
	c, ok := v.(content)
	if _, isText := valueOf(other).(string); ok && isText && c.text != "" {
		return c.text
	}
	return valueOf(v)
}

// evaluate evaluates the condition, which must not be a script.
func (c *Condition) evaluate(find lookup) (bool, error) {
	for _, part := range c.parts {
		switch holds, err := part.evaluate(find); {
		case err != nil:
			return false, err
		case c.operator == "not":
			return !holds, nil
		case holds == (c.operator == "or"):
			return holds, nil
		}
	}
	if len(c.parts) > 0 {
		return c.operator == "and", nil
	}
	left, err := fillOperand(c.left, find)
	if err != nil {
		return false, err
	}
	if c.operator == "" {
		left = valueOf(left)
		b, ok := left.(bool)
		if !ok {
			return false, fmt.Errorf("%s is %s; a condition without a comparison must be true or false", c.text, describeKind(left))
		}
		return b, nil
	}
	right, err := fillOperand(c.right, find)
	if err != nil {
		return false, err
	}
	if said, ok := left.(content); ok && c.operator == "contains" && said.text != "" {
		if _, isList := said.value.([]any); !isList {
			left = said.text
		}
	}
	left, right = comparisonValue(left, right), comparisonValue(right, left)
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

// readNumber reads a number exactly. It rejects numbers outside the range of float64: expanded, they could
// take any amount of memory.
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
	return 0, fmt.Errorf("%s and %s cannot be ordered; compare two numbers or two texts", describeKind(a), describeKind(b))
}

// containsValue looks for a text in a text, an element in a list, or a key in an object.
func containsValue(in, what any) (bool, error) {
	switch in := in.(type) {
	case string:
		text, err := formatText(what)
		return err == nil && strings.Contains(in, text), err
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
	return false, fmt.Errorf("contains needs a text, a list or an object on its left, not %s", describeKind(in))
}
