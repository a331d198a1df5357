package transfer

import (
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/validators/document"
)

// fieldsOf are the top-level members of an object, as they are written.
func fieldsOf(doc json.RawMessage) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(doc) == 0 {
		return fields, nil
	}
	err := json.Unmarshal(doc, &fields)
	return fields, err
}

// encodeObject writes members in the order of their keys.
func encodeObject(fields map[string]json.RawMessage) json.RawMessage {
	out, _ := document.Marshal(fields) // it fails only for members that are not JSON, and all were read
	return out
}

// encodeCanonical writes a document of an export.
func encodeCanonical(fields any) (json.RawMessage, error) {
	raw, err := json.Marshal(fields)
	if err == nil {
		raw, err = document.Canonical(raw)
	}
	if err != nil {
		return nil, engine.InternalError("write what is exported", err)
	}
	return raw, nil
}

func quoteJSON(text string) json.RawMessage {
	out, err := json.Marshal(text)
	if err != nil {
		return json.RawMessage(`""`) // a string always marshals
	}
	return out
}

func timeText(t time.Time) json.RawMessage { return quoteJSON(formatTime(t)) }

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// canonicalText compares documents; one that is damaged is what it is.
func canonicalText(doc json.RawMessage) string {
	if out, err := document.Canonical(doc); err == nil {
		return string(out)
	}
	return string(doc)
}

func orEmptyObject(doc json.RawMessage) json.RawMessage {
	if len(doc) == 0 {
		return json.RawMessage("{}")
	}
	return doc
}

// diffContexts is the patch that turns one context into another.
func diffContexts(from, to json.RawMessage) (json.RawMessage, error) {
	patch, err := patchTo(from, to)
	return encodeObject(patch), err
}

// patchTo are the members of that patch.
func patchTo(from, to json.RawMessage) (map[string]json.RawMessage, error) {
	old, err := fieldsOf(from)
	if err != nil {
		return nil, err
	}
	patch, err := fieldsOf(to)
	for key, before := range old {
		if value, stays := patch[key]; !stays {
			patch[key] = json.RawMessage("null")
		} else if canonicalText(before) == canonicalText(value) {
			delete(patch, key)
		}
	}
	return patch, err
}

// extraPart is a part of what an imported event keeps beside its fields.
func extraPart(from *record.Import, part string) json.RawMessage {
	if from == nil {
		return nil
	}
	fields, err := fieldsOf(from.Extra)
	if err != nil {
		return nil
	}
	return fields[part]
}
