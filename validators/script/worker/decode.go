package worker

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dop251/goja"
)

// Bounds of the input of one call: how deep it may nest, and how many values it
// may have, all arguments together. A value takes up to 350 bytes in the runtime:
// an input within the bounds is never what exhausts a script's memory.
const (
	maxDepth  = 64
	maxValues = 150_000
)

var errInput = errors.New("not a JSON object")

// jsonDecoder builds the objects of one runtime straight from JSON text (RFC
// 8259), which is several times faster than the interpreter's own JSON.parse.
// Objects and arrays are plain ones of that runtime: a script may change them,
// and "__proto__" is a property like any other.
type jsonDecoder struct {
	vm     *goja.Runtime
	text   []byte
	at     int
	depth  int
	values *int // still allowed
}

// decodeObject decodes a whole text that must be one object; empty is {}.
func decodeObject(vm *goja.Runtime, text []byte, values *int) (goja.Value, error) {
	if len(text) == 0 {
		return vm.NewObject(), nil
	}
	d := jsonDecoder{vm: vm, text: text, values: values}
	if d.skipSpace(); d.peek() != '{' {
		return nil, errInput
	}
	v, err := d.decodeValue()
	if err != nil {
		return nil, err
	}
	if d.skipSpace(); d.at != len(d.text) {
		return nil, d.newError("text after its end")
	}
	return v, nil
}

func (d *jsonDecoder) newError(what string) error {
	return fmt.Errorf("%w: %s at byte %d", errInput, what, d.at)
}

func (d *jsonDecoder) peek() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

func (d *jsonDecoder) skipSpace() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

func (d *jsonDecoder) decodeValue() (goja.Value, error) {
	if *d.values--; *d.values < 0 {
		return nil, d.newError(fmt.Sprintf("more than %d values", maxValues))
	}
	switch c := d.peek(); c {
	case '{':
		return d.decodeNested(d.decodeMembers)
	case '[':
		return d.decodeNested(d.decodeArray)
	case '"':
		s, err := d.decodeString()
		if err != nil {
			return nil, err
		}
		return d.vm.ToValue(s), nil
	case 't':
		return d.decodeWord("true", d.vm.ToValue(true))
	case 'f':
		return d.decodeWord("false", d.vm.ToValue(false))
	case 'n':
		return d.decodeWord("null", goja.Null())
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return d.decodeNumber()
		}
		return nil, d.newError("expected a value")
	}
}

func (d *jsonDecoder) decodeNested(read func() (goja.Value, error)) (goja.Value, error) {
	if d.depth++; d.depth > maxDepth {
		return nil, d.newError(fmt.Sprintf("nesting deeper than %d levels", maxDepth))
	}
	d.at++
	d.skipSpace()
	v, err := read()
	d.depth--
	return v, err
}

func (d *jsonDecoder) decodeWord(want string, v goja.Value) (goja.Value, error) {
	if len(d.text)-d.at < len(want) || string(d.text[d.at:d.at+len(want)]) != want {
		return nil, d.newError("expected a value")
	}
	d.at += len(want)
	return v, nil
}

func (d *jsonDecoder) decodeMembers() (goja.Value, error) {
	o := d.vm.NewObject()
	if d.peek() == '}' {
		d.at++
		return o, nil
	}
	for {
		if d.peek() != '"' {
			return nil, d.newError("expected a key")
		}
		key, err := d.decodeString()
		if err != nil {
			return nil, err
		}
		if d.skipSpace(); d.peek() != ':' {
			return nil, d.newError("expected a colon")
		}
		d.at++
		d.skipSpace()
		v, err := d.decodeValue()
		if err != nil {
			return nil, err
		}
		if key == "__proto__" { // Set would change the prototype
			err = o.DefineDataProperty(key, v, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE)
		} else {
			err = o.Set(key, v)
		}
		if err != nil {
			return nil, err
		}
		if done, err := d.stepToNext('}'); done || err != nil {
			return o, err
		}
	}
}

func (d *jsonDecoder) decodeArray() (goja.Value, error) {
	var items []any
	if d.peek() == ']' {
		d.at++
		return d.vm.NewArray(), nil
	}
	for {
		v, err := d.decodeValue()
		if err != nil {
			return nil, err
		}
		items = append(items, v)
		if done, err := d.stepToNext(']'); done || err != nil {
			return d.vm.NewArray(items...), err
		}
	}
}

// stepToNext steps over a comma, or over the closing bracket; done reports which.
func (d *jsonDecoder) stepToNext(closing byte) (done bool, err error) {
	d.skipSpace()
	switch d.peek() {
	case ',':
		d.at++
		d.skipSpace()
		return false, nil
	case closing:
		d.at++
		return true, nil
	}
	return true, d.newError("expected a comma")
}

func (d *jsonDecoder) decodeNumber() (goja.Value, error) {
	start := d.at
	integer := true
	if d.peek() == '-' {
		d.at++
	}
	switch {
	case d.peek() == '0':
		d.at++
	case !d.skipDigits():
		return nil, d.newError("invalid number")
	}
	if d.peek() == '.' {
		integer = false
		if d.at++; !d.skipDigits() {
			return nil, d.newError("invalid number")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		integer = false
		d.at++
		if c := d.peek(); c == '+' || c == '-' {
			d.at++
		}
		if !d.skipDigits() {
			return nil, d.newError("invalid number")
		}
	}
	text := d.text[start:d.at]
	if integer && len(text) <= 15 && !(len(text) == 2 && text[0] == '-' && text[1] == '0') {
		return d.vm.ToValue(parseDigits(text)), nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil && !math.IsInf(f, 0) { // too large is Infinity, as JSON.parse has it
		return nil, d.newError("invalid number")
	}
	return d.vm.ToValue(f), nil
}

func parseDigits(text []byte) int64 {
	var n int64
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	for _, c := range text {
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n
	}
	return n
}

func (d *jsonDecoder) skipDigits() bool {
	start := d.at
	for d.at < len(d.text) && d.text[d.at] >= '0' && d.text[d.at] <= '9' {
		d.at++
	}
	return d.at > start
}

// decodeString reads a string. Nearly all have no escape and are one copy.
func (d *jsonDecoder) decodeString() (string, error) {
	d.at++
	start := d.at
	ascii := true
	for d.at < len(d.text) {
		switch c := d.text[d.at]; {
		case c == '"':
			s := string(d.text[start:d.at])
			d.at++
			if !ascii && !utf8.ValidString(s) {
				return "", d.newError("invalid UTF-8")
			}
			return s, nil
		case c == '\\':
			return d.decodeEscapedString(start)
		case c < 0x20:
			return "", d.newError("control character in a string")
		case c >= 0x80:
			ascii = false
		}
		d.at++
	}
	return "", d.newError("unterminated string")
}

// decodeEscapedString reads on from the first escape of a string.
func (d *jsonDecoder) decodeEscapedString(start int) (string, error) {
	buf := append([]byte(nil), d.text[start:d.at]...)
	for d.at < len(d.text) {
		c := d.text[d.at]
		switch {
		case c == '"':
			d.at++
			if !utf8.Valid(buf) {
				return "", d.newError("invalid UTF-8")
			}
			return string(buf), nil
		case c < 0x20:
			return "", d.newError("control character in a string")
		case c != '\\':
			buf = append(buf, c)
			d.at++
			continue
		}
		d.at++
		r, ok := d.decodeEscape()
		if !ok {
			return "", d.newError("unknown escape")
		}
		buf = utf8.AppendRune(buf, r)
	}
	return "", d.newError("unterminated string")
}

// decodeEscape reads what follows a backslash. A lone surrogate becomes U+FFFD, as it
// does for every other reader in Go of the same text.
func (d *jsonDecoder) decodeEscape() (rune, bool) {
	c := d.peek()
	d.at++
	switch c {
	case '"', '\\', '/':
		return rune(c), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case 'u':
		r, ok := d.decodeHex4()
		if !ok || !utf16.IsSurrogate(r) {
			return r, ok
		}
		if d.peek() == '\\' && d.at+1 < len(d.text) && d.text[d.at+1] == 'u' {
			mark := d.at
			d.at += 2
			low, ok := d.decodeHex4()
			if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
				return pair, true
			}
			d.at = mark
		}
		return utf8.RuneError, true
	}
	return 0, false
}

func (d *jsonDecoder) decodeHex4() (rune, bool) {
	if len(d.text)-d.at < 4 {
		return 0, false
	}
	v, err := strconv.ParseUint(string(d.text[d.at:d.at+4]), 16, 16)
	d.at += 4
	return rune(v), err == nil
}
