package schema

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/gavel-mcp/gavel/validators/document"
)

// CompileError describes why a schema does not compile.
type CompileError struct {
	// Path is a JSON pointer into the schema; "" is the whole schema.
	Path string
	// Message is one sentence.
	Message string
}

// Error returns the message with its path.
func (e *CompileError) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return "at " + e.Path + ": " + e.Message
}

// outsideError reports a reference that leaves the schema document.
type outsideError struct{ url string }

func (e *outsideError) Error() string {
	return "the schema refers to " + clipText(strings.TrimPrefix(e.url, "gavel:///"), maxText)
}

const (
	// maxDepth limits the nesting of a schema document, because the library recurses.
	maxDepth = 128
	// maxExponent limits the exponents of numbers: the library computes exactly, so 1e1000000000 would exhaust
	// the memory. A float64 needs 308.
	maxExponent = 400
	maxText     = 200
)

// checkDocument rejects schemas that must not be passed to the library.
func checkDocument(doc document.JSON) *CompileError {
	if path, found := findHugeNumber(doc); found {
		return &CompileError{Path: path, Message: fmt.Sprintf("this number's exponent is beyond %d", maxExponent)}
	}
	if isTooDeep(doc, maxDepth) {
		return &CompileError{Message: fmt.Sprintf("the schema is nested more than %d deep", maxDepth)}
	}
	switch doc.Kind() {
	case document.True, document.False:
	case document.Object:
		if named := doc.Get("$schema"); named.Kind() == document.String && !isKnownDialect(named.Text()) {
			return &CompileError{
				Path:    "/$schema",
				Message: fmt.Sprintf("unknown dialect %q; nothing is loaded from the network; leave $schema out for draft 2020-12, or name 2019-09, draft-07, draft-06 or draft-04 as https://json-schema.org does", clipText(named.Text(), maxText)),
			}
		}
	default:
		return &CompileError{Message: "a schema is an object, true or false, not " + addArticle(typeOf(doc))}
	}
	return nil
}

func isKnownDialect(url string) bool {
	url, _ = strings.CutPrefix(strings.TrimSuffix(url, "#"), "http")
	url = strings.TrimPrefix(url, "s")
	return slices.Contains([]string{
		"://json-schema.org/schema",
		"://json-schema.org/draft/2020-12/schema", "://json-schema.org/draft/2019-09/schema",
		"://json-schema.org/draft-07/schema", "://json-schema.org/draft-06/schema", "://json-schema.org/draft-04/schema",
	}, url)
}

func isTooDeep(v document.JSON, left int) bool {
	if left < 0 {
		return true
	}
	for _, sub := range v.Members() {
		if isTooDeep(sub, left-1) {
			return true
		}
	}
	for _, sub := range v.Elements() {
		if isTooDeep(sub, left-1) {
			return true
		}
	}
	return false
}

// findHugeNumber finds a number with an exponent beyond maxExponent.
func findHugeNumber(v document.JSON) (path string, found bool) {
	switch v.Kind() {
	case document.Number:
		raw := v.Raw()
		if i := bytes.IndexAny(raw, "eE"); i >= 0 {
			exponent, err := strconv.Atoi(string(raw[i+1:]))
			return "", err != nil || exponent > maxExponent || exponent < -maxExponent
		}
	case document.Object:
		for name, sub := range v.Members() {
			if at, found := findHugeNumber(sub); found {
				return "/" + escapeToken(name.Text()) + at, true
			}
		}
	case document.Array:
		for i, sub := range v.Elements() {
			if at, found := findHugeNumber(sub); found {
				return "/" + strconv.Itoa(i) + at, true
			}
		}
	}
	return "", false
}

// describeCompileError converts an error of the library about the schema doc.
func describeCompileError(err error, doc document.JSON) *CompileError {
	var outside *outsideError
	var loop jsonschema.InfiniteLoopError
	var invalid *jsonschema.ValidationError
	switch {
	case errors.As(err, &outside):
		return describeOutsideReference(outside, doc.Any())
	case errors.As(err, &loop):
		return &CompileError{Path: cutLoopPath(string(loop)), Message: "this reference leads back to itself without going deeper into the document"}
	case errors.As(err, &invalid):
		return describeInvalidSchema(invalid, doc)
	}
	text := cleanErrorText(err)
	if target, ok := strings.CutSuffix(text, " not found"); ok {
		e := &CompileError{Message: fmt.Sprintf("the reference to %q has no target in this schema", clipText(target, maxText))}
		e.Path, _ = findReference(doc.Any(), target)
		if names := listDefinitions(doc.Any()); len(names) > 0 {
			e.Message += "; defined are " + strings.Join(names, ", ")
		}
		return e
	}
	return &CompileError{Message: clipText(text, maxText)}
}

func describeOutsideReference(outside *outsideError, doc any) *CompileError {
	target := strings.TrimPrefix(outside.url, "gavel:///")
	path, written := findReference(doc, target)
	if written == "" {
		written = target
	}
	return &CompileError{
		Path:    path,
		Message: fmt.Sprintf("the reference to %q leaves the document; nothing is loaded from the network or from files: put that schema under $defs and refer to it as #/$defs/NAME", clipText(written, maxText)),
	}
}

// describeInvalidSchema describes the first violation of the meta-schema.
func describeInvalidSchema(ve *jsonschema.ValidationError, doc document.JSON) *CompileError {
	r := report{index: loadMetaIndex(ve), doc: doc}
	found := r.listViolations(ve)
	e := &CompileError{Path: found[0].Path, Message: "this is not a valid schema: " + found[0].Message}
	if found[0].Keyword == "format" {
		if pattern := r.findPath(found[0].Path); pattern.Kind() == document.String {
			e.Message = describePattern(pattern.Text(), e.Message)
		} else if _, last, ok := cutLast(found[0].Path); ok {
			e.Message = describePattern(unescapeToken(last), e.Message) // a key of patternProperties
		}
	}
	return e
}

// describePattern describes what is wrong with a regular expression. It returns message if the expression
// compiles.
func describePattern(pattern, message string) string {
	_, err := regexp.Compile(pattern)
	if err == nil {
		return message
	}
	why := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	return "this regular expression is not supported (RE2 syntax: no look-around, no back-references, \\x{E9} instead of \\u00E9): " + clipText(why, maxText)
}

// findReference returns the path and the literal text of the first reference that can resolve to target.
func findReference(doc any, target string) (path, written string) {
	var walk func(v any, at string) bool
	walk = func(v any, at string) bool {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range sortedKeys(v) {
				if text, ok := v[key].(string); ok && references[key] && canReferTo(text, target) {
					path, written = at+"/"+escapeToken(key), text
					return true
				}
				if walk(v[key], at+"/"+escapeToken(key)) {
					return true
				}
			}
		case []any:
			for i, sub := range v {
				if walk(sub, at+"/"+strconv.Itoa(i)) {
					return true
				}
			}
		}
		return false
	}
	walk(doc, "")
	return path, written
}

// canReferTo reports whether a reference, as written, can resolve to target. target has no fragment if the
// document itself was not found.
func canReferTo(written, target string) bool {
	if !strings.Contains(target, "#") {
		written, _, _ = strings.Cut(written, "#")
	}
	written = strings.TrimLeft(written, "./")
	return written != "" && strings.HasSuffix(target, written)
}

// cutLoopPath returns the first path in the library's description of a loop.
func cutLoopPath(text string) string {
	_, path, _ := strings.Cut(strings.ReplaceAll(text, base, ""), "#")
	path, _, _ = strings.Cut(path, base)
	return clipText(path, maxText)
}

// listDefinitions lists the schema's definitions as references, at most maxNames.
func listDefinitions(doc any) []string {
	root, _ := doc.(map[string]any)
	var out []string
	for _, key := range []string{"$defs", "definitions"} {
		defs, _ := root[key].(map[string]any)
		for _, name := range sortedKeys(defs) {
			if len(out) == maxNames {
				return append(out, "...")
			}
			out = append(out, "#/"+key+"/"+clipText(escapeToken(name), maxText))
		}
	}
	return out
}

// cleanErrorText removes the library's prefix and the document's artificial URL.
func cleanErrorText(err error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "compilation failed: "); ok {
		text = after
	}
	text = strings.TrimPrefix(text, "jsonschema: ")
	return strings.ReplaceAll(strings.ReplaceAll(text, base+"#", "#"), base, "the schema")
}
