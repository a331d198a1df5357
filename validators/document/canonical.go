package document

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Marshal is like json.Marshal but does not escape <, > and &, so that people and models can read the result.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// maxCanonicalDepth limits the nesting that Canonical accepts. Its input is assembled by the program from
// checked documents, so it may nest deeper than they do.
const maxCanonicalDepth = 1000

// Canonical writes a JSON value in the canonical form of RFC 8785: no white space, keys sorted by their
// UTF-16 code units, and strings escaped as little as possible. Numbers are written as ECMAScript prints
// them (1.0 and 1e0 become 1). Two texts have the same canonical form if and only if they have the same
// value.
//
// It applies the rules of CheckJSON except for size and depth (here 1000). The number rule makes the form
// lossless: every accepted number equals the shortest decimal form of its float64. The error is an *Issue.
func Canonical(raw []byte) ([]byte, error) {
	var out []byte
	issue := readCells(raw, Limits{Bytes: len(raw) + 1, Depth: maxCanonicalDepth}, func(r *reader) {
		out = JSON{tape: &r.tape}.Canonical()
	})
	if issue != nil {
		return nil, issue
	}
	return out, nil
}

// Canonical returns the value in the form of the function Canonical. A number that a float64 would change
// keeps its literal; only values read with Limits.Lax or Limits.Literals contain such numbers.
func (v JSON) Canonical() []byte {
	if v.Kind() == 0 {
		return nil
	}
	c := v.cells[v.at]
	return v.AppendSorted(make([]byte, 0, c.end-c.start), appendCanonicalLeaf)
}

func appendCanonicalLeaf(dst []byte, v JSON) []byte {
	switch {
	case v.Kind() == Number:
		if literal := string(v.Raw()); len(literal) <= shortNumber && !strings.ContainsAny(literal, "eE") || keepsValue(literal) {
			return appendNumber(dst, literal)
		}
	case v.Kind() == String && !v.Plain():
		return AppendQuote(dst, v.Text())
	}
	return append(dst, v.Raw()...)
}

// AppendSorted writes a value without white space, with keys sorted by their UTF-16 code units. It calls leaf
// to write each value that is neither an object nor an array.
func (v JSON) AppendSorted(dst []byte, leaf func(dst []byte, v JSON) []byte) []byte {
	switch v.Kind() {
	case Array:
		dst = append(dst, '[')
		for i, item := range v.Elements() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.AppendSorted(dst, leaf)
		}
		return append(dst, ']')
	case Object:
		type member struct {
			key   string
			value JSON
		}
		var few [maxLinearKeys]member
		members := few[:0]
		for name, value := range v.Members() {
			members = append(members, member{name.Text(), value})
		}
		slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.key, b.key) })
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendQuote(dst, m.key), ':')
			dst = m.value.AppendSorted(dst, leaf)
		}
		return append(dst, '}')
	}
	return leaf(dst, v)
}

// appendNumber prints a number as ECMAScript does (RFC 8785 section 3.2.2.3).
func appendNumber(dst []byte, literal string) []byte {
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return append(dst, literal...) // out of range; strict readers reject it earlier
	}
	if f == 0 {
		return append(dst, '0') // also for -0
	}
	if a := max(f, -f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go writes at least two digits of exponent, ECMAScript only those needed.
	if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// compareUTF16 orders strings by their UTF-16 code units. The result differs from byte order only if one
// character is above U+FFFF and the other is between U+E000 and U+FFFF.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		switch {
		case x == y:
		case (x > 0xFFFF) == (y > 0xFFFF):
			return int(x - y)
		case x > 0xFFFF:
			return 0xD800 - int(y) // the first code unit of x is a surrogate
		default:
			return int(x) - 0xD800
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

const numberMessage = "this number would change when read as a 64-bit float; use fewer digits or send it as a string"

// shortNumber is a length in bytes. A literal up to this length without an exponent has at most 15 significant
// digits, which a float64 always preserves.
const shortNumber = 15

// maxExponent is larger than any float64 needs. Larger exponents are clamped to it so that sums cannot
// overflow.
const maxExponent = 1 << 30

// parseDecimal returns the significant digits d1d2d3... of a JSON number, without zeros at either end, and an
// exponent such that the value is ±0.d1d2d3... * 10^exp.
func parseDecimal(literal string) (digits string, exp int) {
	mantissa, power := literal, ""
	if e := strings.IndexAny(literal, "eE"); e >= 0 {
		mantissa, power = literal[:e], literal[e+1:]
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	all := whole + fraction
	digits = strings.TrimLeft(all, "0")
	exp, _ = strconv.Atoi(power) // if out of range, Atoi returns the largest or smallest int
	exp = min(max(exp, -maxExponent), maxExponent) + len(whole) - (len(all) - len(digits))
	return strings.TrimRight(digits, "0"), exp
}

// keepsValue reports whether the shortest decimal form of the float64 nearest to a literal has the same
// decimal value.
func keepsValue(literal string) bool {
	digits, exp := parseDecimal(literal)
	switch {
	case digits == "":
		return true // zero in any spelling
	case len(digits) > 17, exp > 310, exp < -330:
		return false // beyond the shortest form of any float64
	case len(digits) <= 15 && exp < 300 && exp > -300:
		return true // up to 15 digits survive the round trip
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return false // infinite
	}
	shortest, power := parseDecimal(strconv.FormatFloat(f, 'e', -1, 64))
	return shortest == digits && power == exp
}

// findNumberEnd returns the index after the number at start and whether it has an exponent. It returns -1 if
// there is no number in JSON's grammar.
func findNumberEnd(src []byte, start int) (end int, exponent bool) {
	i := start
	if i < len(src) && src[i] == '-' {
		i++
	}
	first := i
	i = skipDigits(src, i)
	if i == first || i > first+1 && src[first] == '0' {
		return -1, false
	}
	if i < len(src) && src[i] == '.' {
		first = i + 1
		if i = skipDigits(src, first); i == first {
			return -1, false
		}
	}
	if i < len(src) && src[i]|0x20 == 'e' {
		first = i + 1
		if first < len(src) && (src[first] == '+' || src[first] == '-') {
			first++
		}
		if i = skipDigits(src, first); i == first {
			return -1, false
		}
		exponent = true
	}
	return i, exponent
}

func skipDigits(src []byte, i int) int {
	for i < len(src) && src[i] >= '0' && src[i] <= '9' {
		i++
	}
	return i
}
