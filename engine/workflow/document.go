package workflow

import (
	"encoding/json"
	"fmt"

	"github.com/gavel-mcp/gavel/validators/document"
)

// CheckDocument says whether doc is a JSON object that an instance may hold, and
// returns it compact, with the digits of its numbers and the order of its keys
// kept. It refuses duplicate keys, invalid UTF-8, NUL, numbers that a 64-bit
// float would change, values nested deeper than 64, and anything that is no
// object. Its length is the caller's to bound. The error is one sentence with
// path and line, without values of the document.
func CheckDocument(doc json.RawMessage) (json.RawMessage, error) {
	if err := document.CheckJSON(doc, document.Limits{Bytes: max(len(doc), 1)}); err != nil {
		return nil, err
	}
	s := scanner{src: doc}
	if s.peek() != '{' {
		return nil, fmt.Errorf("a JSON object is expected, found %s", kindOf(doc[s.pos]))
	}
	if _, err := s.value(); err != nil {
		return nil, err
	}
	s.skipSpace()
	if s.spaced {
		return compact(doc)
	}
	return doc, nil
}

func kindOf(first byte) string {
	switch first {
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// Canonical is a JSON document in the canonical form of RFC 8785: two documents
// have the same one exactly when they mean the same. The error says what a
// strict reader refuses in it.
func Canonical(doc json.RawMessage) (json.RawMessage, error) {
	return document.Canonical(doc)
}

// Suggest returns the one of known that was probably meant by word, "" when none
// is near.
func Suggest(word string, known []string) string {
	return document.Suggest(word, known)
}
