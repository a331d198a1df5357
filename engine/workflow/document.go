package workflow

import (
	"encoding/json"
	"fmt"

	"github.com/gavel-mcp/gavel/validators/document"
)

// ReadDocument reads a JSON object that an instance may hold; its text is compact,
// with the digits of its numbers and the order of its keys kept. It refuses duplicate
// keys, invalid UTF-8, NUL, numbers that a 64-bit float would change, values nested
// deeper than 64, and anything that is no object. Its length is the caller's to bound.
// The error is one sentence with path and line, without values of the document.
func ReadDocument(doc json.RawMessage) (document.JSON, error) {
	v, err := document.ReadJSON(doc, document.Limits{Bytes: max(len(doc), 1)})
	if err == nil && v.Kind() != document.Object {
		return document.JSON{}, fmt.Errorf("a JSON object is expected, found %s", v.Kind())
	}
	return v, err
}

// CheckDocument is ReadDocument for callers that need only the text.
func CheckDocument(doc json.RawMessage) (json.RawMessage, error) {
	v, err := ReadDocument(doc)
	return v.Raw(), err
}
