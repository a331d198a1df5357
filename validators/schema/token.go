package schema

import "unicode/utf8"

// numberEnd finds the end of the number at pos, -1 when there is none. whole says
// that it is written as an integer, exact that it has at most exactDigits digits
// and no exponent.
func numberEnd(src []byte, pos int) (end int, whole, exact bool) {
	i := pos
	if i < len(src) && src[i] == '-' {
		i++
	}
	first := i
	i = digits(src, i)
	if i == first || i > first+1 && src[first] == '0' {
		return -1, false, false
	}
	whole = true
	count := i - first
	if i < len(src) && src[i] == '.' {
		first = i + 1
		if i = digits(src, first); i == first {
			return -1, false, false
		}
		whole = false
		count += i - first
	}
	exact = count <= exactDigits
	if i < len(src) && src[i]|0x20 == 'e' {
		first = i + 1
		if first < len(src) && (src[first] == '+' || src[first] == '-') {
			first++
		}
		if i = digits(src, first); i == first || i > first+3 {
			return -1, false, false // a huge exponent is refused elsewhere
		}
		whole, exact = false, false
	}
	return i, whole, exact
}

func digits(src []byte, i int) int {
	for i < len(src) && src[i] >= '0' && src[i] <= '9' {
		i++
	}
	return i
}

func (r *reading) at(pos int) byte {
	if pos < len(r.src) {
		return r.src[pos]
	}
	return 0
}

func (r *reading) space(pos int) int {
	for pos < len(r.src) {
		switch r.src[pos] {
		case ' ', '\t', '\n', '\r':
			pos++
		default:
			return pos
		}
	}
	return pos
}

// form says how the text of a string relates to its value.
type form uint8

const (
	broken form = iota // no well-formed string
	ascii              // the text is the value, a byte a character
	plain              // the text is the value, in UTF-8
	coded              // it has escapes
)

// str finds the string at pos and returns what stands between its quotes.
func (r *reading) str(pos int) (body []byte, end int, f form) {
	src := r.src
	f = ascii
	for i := pos + 1; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			body = src[pos+1 : i]
			if f == plain && !utf8.Valid(body) {
				return nil, 0, broken
			}
			return body, i + 1, f
		case c == '\\':
			f = coded
			i++
		case c < 0x20:
			return nil, 0, broken
		case c >= utf8.RuneSelf && f == ascii:
			f = plain
		}
	}
	return nil, 0, broken
}
