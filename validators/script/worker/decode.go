package worker

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/dop251/goja"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Limits on the input of one call: how deep it may nest, and how many values all arguments together may have.
// A value takes up to 350 bytes in the runtime, so input within these limits cannot exhaust a script's memory.
const (
	maxDepth  = 64
	maxValues = 150_000
)

var errInput = errors.New("not a JSON object")

// objectDecoder builds objects of one runtime from JSON, several times faster than the interpreter's
// JSON.parse. They are plain objects and arrays of that runtime: a script may change them, and "__proto__" is
// an ordinary property.
type objectDecoder struct {
	vm     *goja.Runtime
	values *int // how many more are allowed
}

// decodeObject decodes a whole text that must be one object; an empty text is {}. Of duplicate keys the last
// one counts, and a lone surrogate escape becomes U+FFFD.
func decodeObject(vm *goja.Runtime, text []byte, values *int) (goja.Value, error) {
	if len(text) == 0 {
		return vm.NewObject(), nil
	}
	doc, err := document.ReadJSON(text, document.Limits{Bytes: len(text), Depth: maxDepth, Lax: true, Spaced: true})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errInput, err)
	case doc.Kind() != document.Object:
		return nil, errInput
	}
	d := objectDecoder{vm: vm, values: values}
	return d.decodeValue(doc)
}

func (d *objectDecoder) decodeValue(v document.JSON) (goja.Value, error) {
	if *d.values--; *d.values < 0 {
		return nil, fmt.Errorf("%w: more than %d values", errInput, maxValues)
	}
	switch v.Kind() {
	case document.Object:
		o := d.vm.NewObject()
		for name, value := range v.Members() {
			if err := d.setMember(o, name.Text(), value); err != nil {
				return nil, err
			}
		}
		return o, nil
	case document.Array:
		var items []any
		for _, item := range v.Elements() {
			value, err := d.decodeValue(item)
			if err != nil {
				return nil, err
			}
			items = append(items, value)
		}
		return d.vm.NewArray(items...), nil
	case document.String:
		return d.vm.ToValue(v.Text()), nil
	case document.Number:
		return d.decodeNumber(v.Raw())
	case document.True, document.False:
		return d.vm.ToValue(v.Kind() == document.True), nil
	}
	return goja.Null(), nil
}

func (d *objectDecoder) setMember(o *goja.Object, key string, value document.JSON) error {
	v, err := d.decodeValue(value)
	if err != nil {
		return err
	}
	if key == "__proto__" { // Set would change the prototype
		return o.DefineDataProperty(key, v, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE)
	}
	return o.Set(key, v)
}

func (d *objectDecoder) decodeNumber(literal []byte) (goja.Value, error) {
	if len(literal) <= 15 && !bytes.ContainsAny(literal, ".eE") && string(literal) != "-0" {
		n, err := strconv.ParseInt(string(literal), 10, 64)
		return d.vm.ToValue(n), err
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil && !math.IsInf(f, 0) { // too large a number is Infinity, as in JSON.parse
		return nil, fmt.Errorf("%w: %w", errInput, err)
	}
	return d.vm.ToValue(f), nil
}
