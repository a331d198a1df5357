package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
)

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
	old, oldSpaced, err := members(orEmpty(context))
	if err != nil {
		return nil, fmt.Errorf("merge: context: %w", err)
	}
	set, setSpaced, err := members(orEmpty(data))
	if err != nil {
		return nil, fmt.Errorf("merge: data: %w", err)
	}
	if len(set) == 0 && !oldSpaced {
		return orEmpty(context), nil
	}
	out := make([]byte, 0, len(context)+len(data)+2)
	out = append(out, '{')
	find := finder(set)
	taken := make([]bool, len(set))
	for _, m := range old {
		if i := find(m.key); i >= 0 {
			taken[i] = true
			m.value = set[i].value
			if isNull(m.value) {
				continue
			}
		}
		out = appendMember(out, m)
	}
	for i, m := range set {
		if !taken[i] && !isNull(m.value) {
			out = appendMember(out, m)
		}
	}
	out = append(out, '}')
	if oldSpaced || setSpaced {
		return compact(out)
	}
	return out, nil
}

// orEmpty reads an absent document as an empty object.
func orEmpty(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return json.RawMessage("{}")
	}
	return doc
}

// finder returns a function that gives the index of a key, -1 when absent.
func finder(list []member) func([]byte) int {
	if len(list) <= smallObject {
		return func(key []byte) int {
			for i := range list {
				if bytes.Equal(list[i].key, key) {
					return i
				}
			}
			return -1
		}
	}
	index := make(map[string]int, len(list))
	for i := range list {
		index[string(list[i].key)] = i
	}
	return func(key []byte) int {
		if i, ok := index[string(key)]; ok {
			return i
		}
		return -1
	}
}

func appendMember(out []byte, m member) []byte {
	if len(out) > 1 {
		out = append(out, ',')
	}
	out = append(out, m.name...)
	out = append(out, ':')
	return append(out, m.value...)
}

func compact(doc []byte) (json.RawMessage, error) {
	var b bytes.Buffer
	b.Grow(len(doc))
	if err := json.Compact(&b, doc); err != nil {
		return nil, fmt.Errorf("%w: %w", errSyntax, err)
	}
	return b.Bytes(), nil
}
