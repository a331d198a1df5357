package document

import (
	"strconv"
	"strings"
)

const numberMessage = "this number would change when read as a 64-bit float; use fewer digits or send it as a string"

// shortNumber is a length up to which a literal without an exponent has at most
// 15 significant digits, which a float64 always keeps.
const shortNumber = 15

// maxExponent is beyond what any float64 needs; larger ones are clamped so that sums
// cannot overflow.
const maxExponent = 1 << 30

// parseDecimal returns the significant digits d1d2d3... of a JSON number, without zeros at
// either end, and the power of ten of the first: ±0.d1d2d3... * 10^exp.
func parseDecimal(literal string) (digits string, exp int) {
	mantissa, power := literal, ""
	if e := strings.IndexAny(literal, "eE"); e >= 0 {
		mantissa, power = literal[:e], literal[e+1:]
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	all := whole + fraction
	digits = strings.TrimLeft(all, "0")
	exp, _ = strconv.Atoi(power) // out of range it is the greatest or the least int
	exp = min(max(exp, -maxExponent), maxExponent) + len(whole) - (len(all) - len(digits))
	return strings.TrimRight(digits, "0"), exp
}

// keepsValue says whether the shortest decimal form of the float64 nearest to a
// literal is the same decimal value.
func keepsValue(literal string) bool {
	digits, exp := parseDecimal(literal)
	switch {
	case digits == "":
		return true // zero, however it is written
	case len(digits) > 17, exp > 310, exp < -330:
		return false // no float64 has a shortest form like this
	case len(digits) <= 15 && exp < 300 && exp > -300:
		return true // up to 15 digits survive the way there and back
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return false // infinite
	}
	shortest, power := parseDecimal(strconv.FormatFloat(f, 'e', -1, 64))
	return shortest == digits && power == exp
}

// findNumberEnd finds where the number at start ends, -1 when the grammar of JSON
// has none there.
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
