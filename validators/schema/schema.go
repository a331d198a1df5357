package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/gavel-mcp/gavel/validators/document"
)

// base is the document's own address, which $ref may not leave.
const base = "gavel:///schema.json"

// Schema is a compiled JSON Schema. It is immutable and safe for concurrent use.
type Schema struct {
	library *jsonschema.Schema
	index   index
	fast    *node
}

// Compile compiles one schema document: an object, true or false. The error is a
// *CompileError.
func Compile(raw json.RawMessage) (out *Schema, err error) {
	defer func() {
		// The library panics on some schemas that its own meta-schema lets pass.
		if r := recover(); r != nil {
			out, err = nil, &CompileError{Message: fmt.Sprintf("the schema cannot be compiled: %s", clip(fmt.Sprint(r), maxText))}
		}
	}()
	doc, err := decodeJSON(raw)
	if err != nil {
		return nil, &CompileError{Message: "the schema is not JSON: " + err.Error()}
	}
	if wrong := checkDocument(doc); wrong != nil {
		return nil, wrong
	}
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	c.AssertFormat = true
	c.LoadURL = func(url string) (io.ReadCloser, error) { return nil, &outsideError{url} }
	if err := c.AddResource(base, bytes.NewReader(raw)); err != nil {
		return nil, &CompileError{Message: "the schema is not JSON: " + cleanErrorText(err)}
	}
	s, err := c.Compile(base)
	if err != nil {
		return nil, describeCompileError(err, doc)
	}
	ix := index{}
	ix.add(s)
	return &Schema{library: s, index: ix, fast: newRecogniser(s)}, nil
}

// ErrUnapplied reports that a schema could not be applied to a document; it says
// nothing about the document.
var ErrUnapplied = errors.New("the schema could not be applied")

// ValidateJSON checks one JSON document and returns what is wrong with it, at
// most MaxViolations and a note of how many more. The document must not hold a key
// twice (the program refuses such before they get here); otherwise it is open
// which of the values counts. The error wraps ErrUnapplied.
func (s *Schema) ValidateJSON(raw json.RawMessage) ([]Violation, error) {
	doc := document.Known(raw)
	if doc.Kind() == 0 {
		return nil, fmt.Errorf("%w: the document is not JSON", ErrUnapplied)
	}
	return s.ValidateDocument(doc)
}

// ValidateDocument is ValidateJSON of a document that was read.
func (s *Schema) ValidateDocument(doc document.JSON) ([]Violation, error) {
	if s.fast.accepts(doc) {
		return nil, nil
	}
	v := doc.Any()
	if path, found := findHugeNumber(v, ""); found {
		return nil, fmt.Errorf("%w: the document has a number with a huge exponent at %s", ErrUnapplied, path)
	}
	return s.validate(v)
}

// Validate checks a document that was decoded with json.Number. A schema that
// cannot be applied is one violation with the keyword "$ref".
func (s *Schema) Validate(doc any) []Violation {
	out, err := s.validate(doc)
	if err != nil {
		return []Violation{{Keyword: "$ref", Message: err.Error()}}
	}
	return out
}

func (s *Schema) validate(doc any) (out []Violation, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("%w: the library failed", ErrUnapplied)
		}
	}()
	found := s.library.Validate(doc)
	var ve *jsonschema.ValidationError
	var loop jsonschema.InfiniteLoopError
	switch {
	case found == nil:
		return nil, nil
	case errors.As(found, &ve):
		return report{index: s.index, doc: doc}.listViolations(ve), nil
	case errors.As(found, &loop):
		return nil, fmt.Errorf("%w: a reference leads back to itself without going deeper into the document", ErrUnapplied)
	default:
		return nil, fmt.Errorf("%w: %s", ErrUnapplied, clip(cleanErrorText(found), maxText))
	}
}

// decodeJSON reads exactly one JSON value; numbers keep their literal.
func decodeJSON(raw []byte) (any, error) {
	v, err := document.ReadJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: 10_000, Lax: true})
	return v.Any(), err
}
