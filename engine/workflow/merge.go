package workflow

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/validators/document"
)

// errSyntax reports a document that is not well-formed JSON. Documents arrive
// here checked, so it means a defect of the caller; it exists so that a defect
// is an error and not a wrong answer.
var errSyntax = errors.New("not well-formed JSON")

// Merge returns the context after an action with data: each top-level key of
// data replaces that of context as a whole, and a null removes it. Values are
// copied literally, so numbers keep the digits they were written with. Keys that
// were there keep their place, new ones follow in the order of data. Both are
// JSON objects without duplicate keys; nil is {}. The result is compact; it may
// share memory with context.
//
// The error means that an argument is not a well-formed object, which a caller
// that checked its input never sees.
func Merge(context, data json.RawMessage) (json.RawMessage, error) {
	old, err := readObject(context)
	if err != nil {
		return nil, fmt.Errorf("merge: context: %w", err)
	}
	set, err := readObject(data)
	if err != nil {
		return nil, fmt.Errorf("merge: data: %w", err)
	}
	return mergeObjects(old, set).Raw(), nil
}

// emptyObject is {}.
var emptyObject = document.Known([]byte("{}"))

// readObject reads a stored or checked object; nil is {}.
func readObject(doc json.RawMessage) (document.JSON, error) {
	if len(doc) == 0 {
		return emptyObject, nil
	}
	v := document.Known(doc)
	if v.Kind() != document.Object {
		return v, fmt.Errorf("%w: expected an object", errSyntax)
	}
	if name := v.Duplicate(); name.Kind() != 0 {
		return v, fmt.Errorf("%w: duplicate key %q", errSyntax, name.Text())
	}
	return v, nil
}

func mergeObjects(context, data document.JSON) document.JSON {
	if data.Len() == 0 {
		return context
	}
	b := document.NewBuilder(context, data)
	b.Begin(document.Object)
	put := func(name, value document.JSON) {
		b.Name(name)
		b.Copy(value)
	}
	set, had := data.Finder(), context.Finder()
	for name, value := range context.Members() {
		switch now := set(name); now.Kind() {
		case document.Null:
		case 0:
			put(name, value)
		default:
			put(name, now)
		}
	}
	for name, value := range data.Members() {
		if value.Kind() != document.Null && had(name).Kind() == 0 {
			put(name, value)
		}
	}
	b.End()
	return b.JSON()
}
