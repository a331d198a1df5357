package strictdoc

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// scalar resolves a scalar by the core schema of YAML 1.2: the library's own rules
// are those of YAML 1.1 in part.
func (b *yamlBuilder) scalar(n *Node, v *yaml.Node) bool {
	n.Text = v.Value
	if v.Style != 0 {
		n.Kind = String
		return b.text(v)
	}
	switch v.Value {
	case "", "~", "null", "Null", "NULL":
		n.Kind, n.Text = Null, ""
	case "true", "True", "TRUE":
		n.Kind, n.Text = Bool, "true"
	case "false", "False", "FALSE":
		n.Kind, n.Text = Bool, "false"
	default:
		return b.plain(n, v)
	}
	return true
}

// plain resolves a plain scalar that is a number or a string.
func (b *yamlBuilder) plain(n *Node, v *yaml.Node) bool {
	lit := []byte(v.Value)
	if end, _ := numberEnd(lit, 0); end == len(lit) {
		n.Kind = Number
		if !keepsValue(lit) {
			return b.refuse(v, RuleNumber, "%s", numberMessage)
		}
		return true
	}
	if coreNumber(v.Value) {
		return b.refuse(v, RuleUnsupported, "YAML reads this as a number and JSON does not; write it as a plain decimal, or put it in quotes")
	}
	n.Kind = String
	return b.text(v)
}

// text refuses NUL, which an escape may bring in.
func (b *yamlBuilder) text(v *yaml.Node) bool {
	if strings.IndexByte(v.Value, 0) >= 0 {
		return b.refuse(v, RuleNUL, "NUL (U+0000) is not allowed")
	}
	return true
}

// coreNumber says whether the core schema reads a plain scalar that is no JSON
// number as one.
func coreNumber(s string) bool {
	unsigned := strings.TrimLeft(s, "+-")
	if len(s)-len(unsigned) > 1 {
		return false
	}
	switch strings.ToLower(unsigned) {
	case ".inf":
		return true
	case ".nan":
		return s == unsigned
	}
	if len(unsigned) > 2 && unsigned[0] == '0' && s == unsigned {
		switch unsigned[1] {
		case 'x':
			return strings.Trim(unsigned[2:], "0123456789abcdefABCDEF") == ""
		case 'o':
			return strings.Trim(unsigned[2:], "01234567") == ""
		}
	}
	// The rest differs from JSON's grammar only by a plus sign, leading zeros and
	// a missing digit on one side of the point.
	b := []byte(unsigned)
	whole := digits(b, 0)
	end := whole
	if end < len(b) && b[end] == '.' {
		end = digits(b, end+1)
		if end == whole+1 && whole == 0 {
			return false
		}
	}
	if end == 0 {
		return false
	}
	if end < len(b) && b[end]|0x20 == 'e' {
		first := end + 1
		if first < len(b) && (b[first] == '+' || b[first] == '-') {
			first++
		}
		if end = digits(b, first); end == first {
			return false
		}
	}
	return end == len(b)
}
