package strictdoc

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// scalar resolves a token by the core schema of YAML 1.2.
func (b *yamlBuilder) scalar(n *Node, tk *token.Token) bool {
	n.locate(tk)
	n.Text = tk.Value
	switch tk.Type {
	case token.ImplicitNullType:
		n.Kind, n.Text = Null, ""
		return true
	case token.SingleQuoteType:
		n.Kind = String
		return b.text(n, tk)
	case token.DoubleQuoteType:
		n.Kind = String
		return b.escapes(tk) && b.text(n, tk)
	}
	switch tk.Value {
	case "", "~", "null", "Null", "NULL":
		n.Kind, n.Text = Null, ""
	case "true", "True", "TRUE":
		n.Kind, n.Text = Bool, "true"
	case "false", "False", "FALSE":
		n.Kind, n.Text = Bool, "false"
	default:
		return b.plain(n, tk)
	}
	return true
}

// plain resolves a plain scalar that is a number or a string.
func (b *yamlBuilder) plain(n *Node, tk *token.Token) bool {
	lit := []byte(tk.Value)
	if end, _ := numberEnd(lit, 0); end == len(lit) {
		n.Kind = Number
		if !keepsValue(lit) {
			return b.refuse(tk, RuleNumber, "%s", numberMessage)
		}
		return true
	}
	if coreNumber(tk.Value) {
		return b.refuse(tk, RuleUnsupported, "YAML reads this as a number and JSON does not; write it as a plain decimal, or put it in quotes")
	}
	n.Kind = String
	return b.text(n, tk)
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

// text refuses a string that is no text.
func (b *yamlBuilder) text(n *Node, tk *token.Token) bool {
	if strings.IndexByte(n.Text, 0) >= 0 {
		return b.refuse(tk, RuleNUL, "NUL (U+0000) is not allowed")
	}
	if !utf8.ValidString(n.Text) {
		return b.refuse(tk, RuleUTF8, "this string is not valid UTF-8")
	}
	return true
}

// escapes checks the hexadecimal escapes of a double-quoted scalar in the source:
// the library reads any character as a digit and replaces what is no character.
func (b *yamlBuilder) escapes(tk *token.Token) bool {
	if tk.Position == nil || tk.Position.Line < 1 || tk.Position.Line > len(b.lines) {
		return true
	}
	s := cutRunes(b.lines[tk.Position.Line-1], tk.Position.Column-1)
	if s == "" || s[0] != '"' {
		return b.unreplaced(tk)
	}
	s = s[1:]
	for line := tk.Position.Line; ; {
		i := strings.IndexAny(s, `"\`)
		switch {
		case i < 0:
			if line >= len(b.lines) {
				return true
			}
			s = b.lines[line]
			line++
			continue
		case s[i] == '"':
			return true
		}
		size := escapeSize(s[i:])
		if size == 0 {
			return b.refuse(tk, RuleUTF8, "this string has an escape that is no character; write the character itself")
		}
		s = s[min(i+size, len(s)):]
	}
}

// unreplaced refuses a value in which the library put a replacement character.
// It is for scalars that were not found in the source.
func (b *yamlBuilder) unreplaced(tk *token.Token) bool {
	if strings.ContainsRune(tk.Value, utf8.RuneError) {
		return b.refuse(tk, RuleUTF8, "this string has an escape that is no character; write the character itself")
	}
	return true
}

// escapeSize is the length of the escape at the start of s, 0 when it names no
// character.
func escapeSize(s string) int {
	if len(s) < 2 {
		return 1
	}
	n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	if n == 0 {
		return 2
	}
	if len(s) < 2+n {
		return 0
	}
	code, err := strconv.ParseUint(s[2:2+n], 16, 32)
	if err != nil {
		return 0
	}
	r := rune(min(code, utf8.MaxRune+1))
	if utf8.ValidRune(r) {
		return 2 + n
	}
	if n == 4 && r < 0xDC00 && len(s) >= 12 && s[6:8] == `\u` {
		if low := hex4([]byte(s[8:12])); low >= 0xDC00 && low <= 0xDFFF {
			return 12
		}
	}
	return 0
}

// cutRunes drops the first n characters.
func cutRunes(s string, n int) string {
	for i := range s {
		if n <= 0 {
			return s[i:]
		}
		n--
	}
	return ""
}
