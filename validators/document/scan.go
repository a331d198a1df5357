package document

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner passes over the tokens of a JSON text. Its methods return false after
// they have recorded what is wrong.
type scanner struct {
	src []byte
	pos int
	// fault is what was refused, at byte offset at; trail is the way to it,
	// innermost token first.
	fault *Issue
	at    int
	trail []string
}

// refuse records a fault. It returns false so that callers can return it.
func (s *scanner) refuse(rule Rule, at int, message string) bool {
	s.fault = &Issue{Rule: rule, Message: message}
	s.at = at
	return false
}

func (s *scanner) passed(key string)   { s.trail = append(s.trail, key) }
func (s *scanner) passedIndex(i int)   { s.trail = append(s.trail, strconv.Itoa(i)) }
func duplicateMessage(k string) string { return fmt.Sprintf("the key %q stands twice", clip(k)) }

// issue finishes the fault: position and path.
func (s *scanner) issue() *Issue {
	s.fault.Line, s.fault.Column = position(s.src, min(s.at, len(s.src)))
	for i := len(s.trail) - 1; i >= 0; i-- {
		s.fault.Path = appendToken(s.fault.Path, s.trail[i])
	}
	return s.fault
}

// begin refuses what cannot be the start of a document.
func (s *scanner) begin() bool {
	if len(s.src) >= 3 && s.src[0] == 0xEF && s.src[1] == 0xBB && s.src[2] == 0xBF {
		return s.refuse(RuleSyntax, 0, "the text begins with a byte order mark; send plain UTF-8")
	}
	s.peek()
	if s.pos == len(s.src) {
		return s.refuse(RuleSyntax, s.pos, "the document is empty")
	}
	return true
}

// finish refuses anything after the value.
func (s *scanner) finish() bool {
	s.peek()
	if s.pos < len(s.src) {
		return s.refuse(RuleSyntax, s.pos, "there is more text after the end of the JSON value")
	}
	return true
}

// peek skips white space and returns the byte after it, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) colon() bool {
	if s.peek() != ':' {
		return s.refuse(RuleSyntax, s.pos, s.expected(`":" after a key`))
	}
	s.pos++
	return true
}

// next passes a comma (more is true) or the closing bracket.
func (s *scanner) next(closing byte) (more, ok bool) {
	switch s.peek() {
	case ',':
		s.pos++
		return true, true
	case closing:
		s.pos++
		return false, true
	}
	return false, s.refuse(RuleSyntax, s.pos, s.expected(fmt.Sprintf(`"," or "%c"`, closing)))
}

// expected words a syntax error without quoting the document.
func (s *scanner) expected(what string) string {
	switch {
	case s.pos >= len(s.src):
		return "the text ends where " + what + " is expected"
	case s.src[s.pos] == '\'':
		return "found a single quote where " + what + " is expected; JSON strings stand in double quotes"
	case s.src[s.pos] == '/' || s.src[s.pos] == '#':
		return "found what looks like a comment where " + what + " is expected; JSON has no comments"
	case s.pos > 0 && strings.IndexByte("}]", s.src[s.pos]) >= 0 && lastToken(s.src[:s.pos]) == ',':
		return "found a comma before a closing bracket; JSON allows none there"
	}
	return what + " is expected here"
}

func lastToken(src []byte) byte {
	for i := len(src) - 1; i >= 0; i-- {
		switch src[i] {
		case ' ', '\t', '\n', '\r':
		default:
			return src[i]
		}
	}
	return 0
}

// plain marks the bytes that stand for themselves inside a string.
var plain = func() (t [256]bool) {
	for c := 0x20; c < 0x80; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// Constants of the eight-bytes-at-once search: a byte b of x is special when it
// has its high bit set, is below 0x20, or is a quote or backslash.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str passes a string and returns what stands between its quotes. pos is at the
// opening quote.
func (s *scanner) str() (body []byte, escaped, ok bool) {
	s.pos++
	start := s.pos
	src := s.src
	i := s.pos
	for {
		for i+8 <= len(src) {
			x := binary.LittleEndian.Uint64(src[i:])
			q, b := x^(ones*'"'), x^(ones*'\\')
			if ((x-ones*0x20)&^x|(q-ones)&^q|(b-ones)&^b|x)&highs != 0 {
				break
			}
			i += 8
		}
		for i < len(src) && plain[src[i]] {
			i++
		}
		if i == len(src) {
			s.pos = i
			return nil, false, s.refuse(RuleSyntax, start-1, "this string is not closed")
		}
		switch c := src[i]; {
		case c == '"':
			s.pos = i + 1
			return src[start:i], escaped, true
		case c == '\\':
			escaped = true
			n := s.escape(i)
			if n == 0 {
				return nil, false, false
			}
			i += n
		case c < 0x20:
			return nil, false, s.control(i, c)
		default:
			r, size := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && size == 1 {
				return nil, false, s.refuse(RuleUTF8, i, "these bytes are not valid UTF-8")
			}
			i += size
		}
	}
}

func (s *scanner) control(at int, c byte) bool {
	switch c {
	case 0:
		return s.refuse(RuleNUL, at, "NUL (U+0000) is not allowed")
	case '\n', '\r':
		return s.refuse(RuleSyntax, at, `a string may not span lines; write the line break as \n`)
	}
	return s.refuse(RuleSyntax, at, "a control character in a string must be escaped")
}

// escape checks the escape at i and returns its length, 0 when refused.
func (s *scanner) escape(i int) int {
	if i+1 >= len(s.src) {
		s.refuse(RuleSyntax, i, "this string is not closed")
		return 0
	}
	switch s.src[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
	default:
		s.refuse(RuleSyntax, i, "this escape is not one of JSON's")
		return 0
	}
	r := hex4(s.src[i+2:])
	switch {
	case r < 0:
		s.refuse(RuleSyntax, i, `four hexadecimal digits must follow \u`)
		return 0
	case r == 0:
		s.refuse(RuleNUL, i, "NUL (U+0000) is not allowed")
		return 0
	case !utf16.IsSurrogate(r):
		return 6
	}
	if i+12 <= len(s.src) && s.src[i+6] == '\\' && s.src[i+7] == 'u' {
		if utf16.DecodeRune(r, hex4(s.src[i+8:])) != utf8.RuneError {
			return 12
		}
	}
	s.refuse(RuleUTF8, i, "half of a surrogate pair is no character; write both halves, or the character itself")
	return 0
}

// hex4 reads four hexadecimal digits, -1 when they are not there.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendUnescaped decodes the body of a string that str accepted.
func appendUnescaped(dst, body []byte) []byte {
	for i := 0; i < len(body); {
		c := body[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		i += 2
		switch c := body[i-1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(body[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hex4(body[i+2:]))
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// scalar passes a number, true, false or null.
func (s *scanner) scalar() bool {
	if s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '-' || c >= '0' && c <= '9':
			_, ok := s.number()
			return ok
		case c == 't' && s.word("true"), c == 'f' && s.word("false"), c == 'n' && s.word("null"):
			return true
		}
	}
	return s.refuse(RuleSyntax, s.pos, s.expected("a JSON value"))
}

func (s *scanner) word(w string) bool {
	end := s.pos + len(w)
	if end > len(s.src) || string(s.src[s.pos:end]) != w {
		return false
	}
	s.pos = end
	return true
}

// number passes a number and returns its literal.
func (s *scanner) number() ([]byte, bool) {
	start := s.pos
	end, exponent := numberEnd(s.src, start)
	if end < 0 {
		return nil, s.refuse(RuleSyntax, start, "this is not a JSON number")
	}
	s.pos = end
	lit := s.src[start:end]
	if (exponent || len(lit) > shortNumber) && !keepsValue(lit) {
		return nil, s.refuse(RuleNumber, start, numberMessage)
	}
	return lit, true
}

// numberEnd finds where the number at start ends, -1 when the grammar of JSON
// has none there.
func numberEnd(src []byte, start int) (end int, exponent bool) {
	i := start
	if i < len(src) && src[i] == '-' {
		i++
	}
	first := i
	i = digits(src, i)
	if i == first || i > first+1 && src[first] == '0' {
		return -1, false
	}
	if i < len(src) && src[i] == '.' {
		first = i + 1
		if i = digits(src, first); i == first {
			return -1, false
		}
	}
	if i < len(src) && src[i]|0x20 == 'e' {
		first = i + 1
		if first < len(src) && (src[first] == '+' || src[first] == '-') {
			first++
		}
		if i = digits(src, first); i == first {
			return -1, false
		}
		exponent = true
	}
	return i, exponent
}

func digits(src []byte, i int) int {
	for i < len(src) && src[i] >= '0' && src[i] <= '9' {
		i++
	}
	return i
}

const numberMessage = "this number would change when read as a 64-bit float; use fewer digits or send it as a string"

// shortNumber is a length up to which a literal without an exponent has at most
// 15 significant digits, which a float64 always keeps.
const shortNumber = 15

// decimal is a number as its significant digits (no zeros at either end) and the
// power of ten of the first one: 0.d1d2d3... * 10^exp.
type decimal struct {
	digits [18]byte
	n      int // count of digits, 0 for zero; more than 17 are not kept
	exp    int
	neg    bool
}

// maxExponent is beyond what any float64 needs; larger ones are clamped so that
// sums cannot overflow.
const maxExponent = 1 << 30

// parseDecimal reads a literal of the JSON number grammar.
func parseDecimal(lit []byte) decimal {
	var d decimal
	i := 0
	if lit[0] == '-' {
		d.neg = true
		i = 1
	}
	point, zeros := false, 0
	for ; i < len(lit); i++ {
		c := lit[i]
		switch {
		case c == '.':
			point = true
			continue
		case c == 'e' || c == 'E':
			d.exp += parseExponent(lit[i+1:])
			i = len(lit)
			continue
		case c == '0':
			if d.n == 0 { // leading
				if point {
					d.exp--
				}
				continue
			}
			zeros++
		default:
			for ; zeros > 0; zeros-- {
				d.push('0')
			}
			d.push(c)
		}
		if !point {
			d.exp++
		}
	}
	return d
}

func (d *decimal) push(c byte) {
	if d.n < len(d.digits) {
		d.digits[d.n] = c
		d.n++
	}
}

func parseExponent(lit []byte) int {
	sign, v := 1, 0
	if lit[0] == '+' || lit[0] == '-' {
		if lit[0] == '-' {
			sign = -1
		}
		lit = lit[1:]
	}
	for _, c := range lit {
		if v < maxExponent {
			v = v*10 + int(c-'0')
		}
	}
	return sign * v
}

// keepsValue says whether the shortest decimal form of the float64 nearest to a
// literal is the same decimal value.
func keepsValue(lit []byte) bool {
	d := parseDecimal(lit)
	switch {
	case d.n == 0:
		return true // zero, however it is written
	case d.n > 17:
		return false // no shortest form has more digits
	case d.exp > 310 || d.exp < -330:
		return false
	case d.n <= 15 && d.exp < 300 && d.exp > -300:
		return true // up to 15 digits survive the way there and back
	}
	f, err := strconv.ParseFloat(string(lit), 64)
	if err != nil {
		return false // infinite
	}
	var buf [32]byte
	shortest := parseDecimal(strconv.AppendFloat(buf[:0], f, 'e', -1, 64))
	return shortest.n == d.n && shortest.exp == d.exp && shortest.digits == d.digits
}
