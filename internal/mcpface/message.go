package mcpface

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The JSON-RPC codes that this file answers with.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeServerBusy     = -32000
)

// message is what is looked at in a line before it is passed on.
type message struct {
	id      json.RawMessage // nil when there is none
	method  string
	cancels json.RawMessage // the requestId of notifications/cancelled
	// response is true for an answer to a request, which this server never sends.
	response bool
}

// fault is why a line is not passed on.
type fault struct {
	code                int
	name, message, hint string
}

// examine checks what mcp-go would accept and change: bytes that are not UTF-8,
// keys that stand twice, ids that do not survive.
func examine(line []byte) (message, *fault) {
	if !utf8.Valid(line) {
		return message{id: looseID(line)}, &fault{codeParse, "invalid_data", "The message is not valid UTF-8.", "Send UTF-8 text; encode binary data as base64."}
	}
	if !json.Valid(line) {
		return message{}, &fault{codeParse, "parse_error", "The message is not one valid JSON value (or nests too deep).", "Send one JSON-RPC message per line."}
	}
	if line[0] != '{' {
		return message{}, &fault{codeInvalidRequest, "invalid_request", "The message is not a JSON object.", "Send one JSON-RPC message per line; batches are not taken."}
	}
	top, twice := members(line)
	m := message{id: top["id"], response: top["result"] != nil || top["error"] != nil}
	if twice != "" {
		return message{}, &fault{codeInvalidRequest, "invalid_request", "The message has the key " + strconv.Quote(twice) + " twice.", "Send each key once."}
	}
	if m.id != nil {
		if bad := checkID(m.id); bad != nil {
			return m, bad
		}
		m.id = normalID(m.id)
	}
	if raw, ok := top["method"]; ok && json.Unmarshal(raw, &m.method) != nil {
		return m, &fault{codeInvalidRequest, "invalid_request", "The method is not a string.", "Send a JSON-RPC method name."}
	}
	params := top["params"]
	if len(params) > 0 && params[0] == '{' {
		inner, twice := members(params)
		if twice != "" {
			return m, &fault{codeInvalidRequest, "invalid_request", "The params have the key " + strconv.Quote(twice) + " twice.", "Send each key once."}
		}
		m.cancels = normalID(inner["requestId"])
	}
	return m, nil
}

// checkID takes strings, and integers that a 64-bit float keeps: another id would
// come back changed.
func checkID(id json.RawMessage) *fault {
	if id[0] == '"' || string(id) == "null" {
		return nil
	}
	if n, err := strconv.ParseInt(string(id), 10, 64); err == nil && n >= -(1<<53) && n <= 1<<53 {
		return nil
	}
	return &fault{codeInvalidRequest, "invalid_request", "The id is neither a string nor an integer below 2^53.", "Send such an id."}
}

// members are the members of a JSON object, and a key that stands twice (in any
// case: Go's decoder would take either).
func members(object []byte) (map[string]json.RawMessage, string) {
	out := map[string]json.RawMessage{}
	seen := map[string]bool{}
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return out, ""
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return out, ""
		}
		name, _ := key.(string)
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return out, ""
		}
		if folded := strings.ToLower(name); seen[folded] {
			return out, name
		} else {
			seen[folded] = true
		}
		out[name] = v
	}
	return out, ""
}

// looseID finds the id of a line that is not UTF-8, as far as it can be had.
func looseID(line []byte) json.RawMessage {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(bytes.ToValidUTF8(line, []byte("?")), &m) != nil || len(m.ID) == 0 || checkID(m.ID) != nil {
		return nil
	}
	return m.ID
}
