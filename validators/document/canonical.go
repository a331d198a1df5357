package document

import (
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxCanonicalDepth bounds Canonical, whose input the program itself puts
// together out of documents that were checked: it may nest deeper than they.
const maxCanonicalDepth = 1000

// Canonical writes a JSON value in the canonical form of RFC 8785: no white
// space, keys sorted by their UTF-16 code units, strings escaped as little as
// possible, numbers as ECMAScript prints them (1.0 and 1e0 become 1). Two texts
// have the same canonical form exactly when they mean the same.
//
// It applies the rules of CheckJSON except those of size and depth (1000 here).
// The number rule is what makes the form lossless: every accepted number is the
// decimal value of its shortest float64 form. The error is an *Issue.
func Canonical(raw []byte) ([]byte, error) {
	n, issue := parseJSON(raw, Limits{Depth: maxCanonicalDepth})
	if issue != nil {
		return nil, issue
	}
	return appendCanonical(make([]byte, 0, len(raw)), n), nil
}

// Canonical writes the value as the function Canonical does.
func (n *Node) Canonical() []byte { return appendCanonical(nil, n) }

func appendCanonical(dst []byte, n *Node) []byte {
	switch n.Kind {
	case Number:
		return appendNumber(dst, n.Text)
	case Array:
		dst = append(dst, '[')
		for i, v := range n.Items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCanonical(dst, v)
		}
		return append(dst, ']')
	case Object:
		members := slices.Clone(n.Members)
		slices.SortFunc(members, func(a, b Member) int { return compareUTF16(a.Key, b.Key) })
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, m.Key), ':')
			dst = appendCanonical(dst, m.Value)
		}
		return append(dst, '}')
	default:
		return n.append(dst)
	}
}

// appendNumber prints a number as ECMAScript does (RFC 8785 section 3.2.2.3).
func appendNumber(dst []byte, literal string) []byte {
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return append(dst, literal...) // out of range: refused before it gets here
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

// compareUTF16 orders strings by their UTF-16 code units. It differs from the
// order of bytes only where one character lies beyond U+FFFF and the other
// between U+E000 and U+FFFF.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if x != y {
			return firstUnit(x, y) - firstUnit(y, x)
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

// firstUnit is the UTF-16 code unit by which r is compared with other: the first
// that can differ.
func firstUnit(r, other rune) int {
	hi, lo := utf16.EncodeRune(r)
	if hi == utf8.RuneError {
		return int(r)
	}
	if otherHi, _ := utf16.EncodeRune(other); otherHi == hi {
		return int(lo)
	}
	return int(hi)
}
