package document

import "strconv"

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
