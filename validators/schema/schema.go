// Package schema checks JSON documents against JSON Schemas.
//
// It promises draft 2020-12 unless $schema says otherwise, asserted formats, and
// violations that say what was expected where, as sentences that a model can act
// on, without a value of the document in them.
//
// It must never reach the network or the file system (a $ref that leaves the
// document is refused), and never panic. It gives no bound on time: a small schema
// with nested applicators can take minutes, so what strangers wrote runs in the
// sandbox's worker. Simple tells which schemas cannot do that.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// base is the document's own address: what $ref may stay within.
const base = "gavel:///schema.json"

// CompileError says why a schema does not compile.
type CompileError struct {
	// Path is a JSON pointer into the schema, "" for the whole.
	Path string
	// Message is one sentence.
	Message string
}

// Error is the message with its place.
func (e *CompileError) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return "at " + e.Path + ": " + e.Message
}

// Schema is a compiled JSON Schema, safe for concurrent use.
type Schema struct{ s *jsonschema.Schema }

// Compile compiles one schema document. The error is a *CompileError.
func Compile(raw json.RawMessage) (out *Schema, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, &CompileError{Message: fmt.Sprintf("the schema cannot be compiled: %v", r)}
		}
	}()
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	c.AssertFormat = true
	c.LoadURL = func(url string) (io.ReadCloser, error) { return nil, &outside{url} }
	if err := c.AddResource(base, bytes.NewReader(raw)); err != nil {
		return nil, &CompileError{Message: "the schema is not JSON: " + trim(err)}
	}
	s, err := c.Compile(base)
	if err != nil {
		return nil, compileError(err)
	}
	return &Schema{s}, nil
}

// outside is a reference that leaves the document.
type outside struct{ url string }

func (o *outside) Error() string {
	return fmt.Sprintf("the reference to %q leaves the document; gavel loads nothing from the network or from files: put the schema under $defs and refer to it as #/$defs/NAME", strings.TrimPrefix(o.url, "gavel:///"))
}

func compileError(err error) *CompileError {
	var o *outside
	if errors.As(err, &o) {
		return &CompileError{Message: o.Error()}
	}
	var loop jsonschema.InfiniteLoopError
	if errors.As(err, &loop) {
		return &CompileError{Message: "a $ref leads back to itself without consuming anything"}
	}
	var se *jsonschema.SchemaError
	var ve *jsonschema.ValidationError
	if errors.As(err, &se) && errors.As(se.Err, &ve) {
		leaf := ve
		for len(leaf.Causes) > 0 {
			leaf = leaf.Causes[0]
		}
		message := leaf.Message
		if strings.Contains(message, "is not valid 'regex'") {
			message = "the pattern is not a regular expression that gavel can run (RE2 syntax: no look-around, no back-references)"
		}
		return &CompileError{Path: leaf.InstanceLocation, Message: message}
	}
	// The library reads some references without LoadURL's error in the chain.
	if text := err.Error(); strings.Contains(text, "leaves the document") {
		if _, after, ok := strings.Cut(text, "the reference to "); ok {
			return &CompileError{Message: "the reference to " + after}
		}
	}
	return &CompileError{Message: trim(err)}
}

func trim(err error) string {
	s := strings.TrimPrefix(err.Error(), "jsonschema: ")
	return strings.ReplaceAll(strings.ReplaceAll(s, base+"#", "#"), base, "the schema")
}

// ErrUnapplied reports that a schema could not be applied to a document; it says
// nothing about the document.
var ErrUnapplied = errors.New("the schema could not be applied")

// ValidateJSON checks one JSON document. The error wraps ErrUnapplied.
func (s *Schema) ValidateJSON(doc json.RawMessage) ([]Violation, error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("%w: the document is not JSON: %w", ErrUnapplied, err)
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
			out, err = nil, fmt.Errorf("%w: %v", ErrUnapplied, r)
		}
	}()
	verr := s.s.Validate(doc)
	var ve *jsonschema.ValidationError
	switch {
	case verr == nil:
		return nil, nil
	case errors.As(verr, &ve):
		return violations(ve), nil
	default:
		return nil, fmt.Errorf("%w: %s", ErrUnapplied, trim(verr))
	}
}
