// Package schema checks JSON documents against JSON Schemas.
//
// It promises:
//
//   - Schemas follow draft 2020-12 unless $schema names another; 2019-09, draft-07, draft-06 and draft-04 are supported.
//     Formats are asserted and numbers are exact.
//   - Violations state what is expected and for which value, as sentences that a model can act on, always in the same
//     order.
//   - A message contains parts of the schema, names of keys, lengths and types. It never contains a value of the
//     document, which may be secret.
//
// It must never access the network or the file system (a $ref that leaves the document does not compile), and
// never panic.
//
// It does not limit time: a small schema with nested applicators can take minutes. So schemas of untrusted
// authors run in the sandbox's worker, and so do an operator's schemas that are not [Simple].
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/gavel-mcp/gavel/validators/document"
)

// base is the schema document's own URL. A $ref must not leave it.
const base = "gavel:///schema.json"

// Schema is a compiled JSON Schema. It is immutable and safe for concurrent use.
type Schema struct {
	library *jsonschema.Schema
	index   index
}

// Compile compiles one schema document: an object, true or false. The error is a *CompileError.
func Compile(raw json.RawMessage) (out *Schema, err error) {
	defer func() {
		// The library panics on some schemas that its own meta-schema allows.
		if r := recover(); r != nil {
			out, err = nil, &CompileError{Message: fmt.Sprintf("the schema cannot be compiled: %s", clipText(fmt.Sprint(r), maxText))}
		}
	}()
	doc, err := readJSON(raw)
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
	return &Schema{library: s, index: ix}, nil
}

// ErrUnapplied reports that a schema could not be applied to a document. It implies nothing about the
// document.
var ErrUnapplied = errors.New("the schema could not be applied")

// Validate checks a document. It returns at most MaxViolations violations and an entry that counts the
// rest. The document must not contain duplicate keys (callers reject them earlier); otherwise it is
// undefined which value is checked. The error wraps ErrUnapplied.
func (s *Schema) Validate(doc document.JSON) (out []Violation, err error) {
	if doc.Kind() == 0 {
		return nil, fmt.Errorf("%w: the document is not JSON", ErrUnapplied)
	}
	if path, found := findHugeNumber(doc); found {
		return nil, fmt.Errorf("%w: the document has a number with a huge exponent at %s", ErrUnapplied, path)
	}
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("%w: the library failed", ErrUnapplied)
		}
	}()
	found := s.library.Validate(doc.Any())
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
		return nil, fmt.Errorf("%w: %s", ErrUnapplied, clipText(cleanErrorText(found), maxText))
	}
}

// readJSON reads exactly one JSON value.
func readJSON(raw []byte) (document.JSON, error) {
	return document.ReadJSON(raw, document.Limits{Bytes: len(raw) + 1, Depth: 10_000, Lax: true})
}

func escapeToken(token string) string { return string(document.PointerOf(token)[1:]) }

func unescapeToken(token string) string {
	for plain := range document.Pointer("/" + token).Tokens() {
		return plain
	}
	return ""
}

// decodeLocation converts a location of the library, which is a URL fragment, into a JSON pointer.
func decodeLocation(location string) string {
	if !strings.Contains(location, "%") {
		return location
	}
	segments := strings.Split(location, "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil {
			segments[i] = plain
		}
	}
	return strings.Join(segments, "/")
}

// missing is the result of findPointer for an absent value.
type missing struct{}

// findPointer returns the value at a JSON pointer of a decoded document.
func findPointer(doc any, path string) any {
	if path == "" {
		return doc
	}
	for token := range strings.SplitSeq(path[1:], "/") {
		switch v := doc.(type) {
		case map[string]any:
			sub, ok := v[unescapeToken(token)]
			if !ok {
				return missing{}
			}
			doc = sub
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return missing{}
			}
			doc = v[i]
		default:
			return missing{}
		}
	}
	return doc
}

// cutLast splits the last segment off a path.
func cutLast(path string) (before, last string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// clipText shortens text to about n bytes, at a character boundary.
func clipText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
