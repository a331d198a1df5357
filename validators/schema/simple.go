package schema

import (
	"bytes"
	"encoding/json"
)

// applicators multiply the work when one stands within another: every branch is
// tried at every level.
var applicators = map[string]bool{
	"allOf": true, "anyOf": true, "oneOf": true, "not": true, "if": true, "then": true, "else": true,
	"dependentSchemas": true, "dependencies": true, "contains": true,
	"unevaluatedProperties": true, "unevaluatedItems": true,
}

// references can make a schema apply within itself.
var references = map[string]bool{"$ref": true, "$dynamicRef": true, "$recursiveRef": true}

// Simple reports whether checking a document against the schema takes time that
// grows with the document alone: no applicator within another, no reference at
// all, no uniqueItems (which compares every pair), no pattern keywords nested in
// those. Only such schemas, and only an operator's, run in the gateway process.
func Simple(raw json.RawMessage) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return false
	}
	return simple(v, 0)
}

func simple(v any, within int) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, sub := range v {
			depth := within
			switch {
			case references[k], k == "uniqueItems":
				return false
			case applicators[k]:
				if depth++; depth > 1 {
					return false
				}
			}
			if !simple(sub, depth) {
				return false
			}
		}
	case []any:
		for _, sub := range v {
			if !simple(sub, within) {
				return false
			}
		}
	}
	return true
}
