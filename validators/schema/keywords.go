package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/gavel-mcp/gavel/validators/document"
)

// The keywords of all drafts, grouped by the form of their value: one schema (items can also be a list),
// schemas by name, a list of schemas, or no schema.
var (
	schemaKeywords = []string{
		"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames",
		"then", "unevaluatedItems", "unevaluatedProperties",
	}
	namedKeywords = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
	listKeywords  = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	otherKeywords = []string{
		"$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$ref", "$schema", "$vocabulary",
		"const", "contentEncoding", "contentMediaType", "default", "dependentRequired", "deprecated", "description", "enum", "examples",
		"exclusiveMaximum", "exclusiveMinimum", "format", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum",
		"minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern", "readOnly", "required", "title",
		"type", "uniqueItems", "writeOnly",
	}
	knownKeywords = slices.Concat(schemaKeywords, namedKeywords, listKeywords, otherKeywords)
	// annotations are keys that other tools use. They are neither keywords nor mistakes.
	annotations = []string{"comment", "example", "id", "note"}
)

// FindMisspelt returns the keys of a schema that look like misspelt keywords; the checks they were meant for
// do not happen. All other unknown keys are annotations. It returns none for a schema in an unknown dialect.
func FindMisspelt(raw json.RawMessage) []*CompileError {
	doc, err := readJSON(raw)
	if named := doc.Get("$schema"); err != nil || named.Kind() == document.String && !isKnownDialect(named.Text()) {
		return nil
	}
	return appendMisspelt(nil, doc, "", maxDepth)
}

func appendMisspelt(out []*CompileError, doc document.JSON, path string, left int) []*CompileError {
	if left < 0 {
		return out
	}
	for name, value := range doc.Members() {
		key := name.Text()
		at := path + "/" + escapeToken(key)
		switch {
		case slices.Contains(schemaKeywords, key) && value.Kind() != document.Array:
			out = appendMisspelt(out, value, at, left-1)
		case slices.Contains(namedKeywords, key):
			for name, one := range value.Members() {
				out = appendMisspelt(out, one, at+"/"+escapeToken(name.Text()), left-2)
			}
		case slices.Contains(listKeywords, key), key == "items":
			for i, one := range value.Elements() {
				out = appendMisspelt(out, one, at+"/"+strconv.Itoa(i), left-2)
			}
		case !slices.Contains(annotations, key):
			if meant := document.Suggest(key, knownKeywords); meant != "" && meant != key {
				out = append(out, &CompileError{Path: at, Message: fmt.Sprintf("unknown keyword %q; did you mean %q?", clipText(key, maxText), meant)})
			}
		}
	}
	return out
}
