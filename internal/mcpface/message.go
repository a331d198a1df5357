package mcpface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/validators/document"
)

// The JSON-RPC codes that this package answers with.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeNotFound       = -32002 // a resource, before protocol version 2026-07-28
	codeNotNow         = -32000
)

// Methods that the reader knows.
const (
	methodPing       = "ping"
	methodInitialize = "initialize"
	methodListen     = "subscriptions/listen"
	methodCallTool   = "tools/call"
	methodCancelled  = "notifications/cancelled"
)

// message is what is looked at in a line before it is passed on.
type message struct {
	id     json.RawMessage // as the client sent it; nil when there is none, or none that can be answered to
	idAt   span            // where it stands in the line
	method string
	tool   string // what tools/call names
	// cancels is the requestId of notifications/cancelled.
	cancels json.RawMessage
	// response is true for an answer to a request of this server; result is what it
	// says, nil for an error.
	response bool
	result   json.RawMessage
}

// fault is why a line is not passed on: a JSON-RPC code, a stable name, a
// sentence, and what to do.
type fault struct {
	code                int
	name, message, hint string
}

func invalid(message, hint string) *fault {
	return &fault{codeInvalidRequest, "invalid_request", message, hint}
}

// The members of a message, and those of params by which the server decides.
// Go's decoder would take them in any case of letters.
var (
	topKeys   = byFold("jsonrpc", "id", "method", "params", "result", "error")
	paramKeys = byFold("name", "arguments", "uri", "requestId", "cursor", "_meta")
)

func byFold(keys ...string) map[string]string {
	m := map[string]string{}
	for _, k := range keys {
		m[folded(k)] = k
	}
	return m
}

// deepest bounds nesting outside a tool's arguments, which have a limit of their own.
const deepest = 64

// examine checks what the protocol library would accept and change: bytes that
// are not UTF-8, escapes that are no text, keys that stand twice, ids that do not
// survive. A tool's arguments are left to the tool, which answers in words that
// its caller sees.
func examine(line []byte) (message, *fault) {
	if !utf8.Valid(line) {
		return message{id: looseID(line)}, &fault{codeParse, "invalid_data", "The message is not valid UTF-8.", "Send UTF-8 text; encode binary data as base64."}
	}
	if !json.Valid(line) {
		return message{}, &fault{codeParse, "parse_error", "The message is not one valid JSON value, or nests too deep.", "Send one JSON-RPC message per line."}
	}
	if line[0] != '{' {
		return message{}, invalid("The message is not a JSON object.", "Send one JSON-RPC message per line; batches are not taken.")
	}
	top, bad := collect(line, span{0, len(line)}, topKeys)
	m := message{response: !top["result"].empty() || !top["error"].empty()}
	if at := top["id"]; !at.empty() && (bad == nil || bad.key != "id") {
		m.id, m.idAt = answerable(at.of(line)), at
	}
	if at := top["result"]; !at.empty() {
		m.result = at.of(line)
	}
	if bad != nil {
		return m, bad.fault("message")
	}
	if f := m.readTop(line, top); f != nil {
		return m, f
	}
	switch at := top["params"]; {
	case at.empty() || m.response || string(at.of(line)) == "null":
		return m, nil
	case line[at.start] != '{':
		return m, &fault{codeInvalidParams, "invalid_request", "The params of the message are not an object.", "Send params by name; the protocol has none by position."}
	default:
		return m, m.readParams(line, at)
	}
}

// readTop takes id and method.
func (m *message) readTop(line []byte, top map[string]span) *fault {
	at, named := top["method"]
	if m.response && !named {
		return nil // nothing was asked of the client, so nothing is looked at
	}
	if at := top["id"]; !at.empty() {
		if f := checkID(at.of(line)); f != nil {
			return f
		}
	}
	if string(top["jsonrpc"].of(line)) != `"2.0"` {
		return invalid("The message has no jsonrpc of \"2.0\".", "Send JSON-RPC 2.0.")
	}
	switch {
	case m.response:
		return invalid("The message is a request and an answer at once.", "Send either method or result.")
	case !named:
		return invalid("The message has no method.", "Send a JSON-RPC request.")
	case line[at.start] != '"':
		return invalid("The method is not a string.", "Send the name of a method.")
	}
	m.method = keyText(at.of(line))
	for key, at := range top {
		if key == "id" || key == "params" {
			continue
		}
		if f := strict(line, at, key); f != nil {
			return f
		}
	}
	return nil
}

// readParams checks params, a tool's arguments excepted.
func (m *message) readParams(line []byte, at span) *fault {
	params, bad := collect(line, at, paramKeys)
	if bad != nil {
		return bad.fault("params")
	}
	for key, at := range params {
		switch {
		case key == "arguments" && m.method == methodCallTool:
		case key == "requestId" && m.method == methodCancelled:
			m.cancels = at.of(line)
		default:
			if f := strict(line, at, key); f != nil {
				return f
			}
		}
	}
	if at := params["name"]; m.method == methodCallTool && !at.empty() && line[at.start] == '"' {
		m.tool = keyText(at.of(line))
	}
	return nil
}

// strict refuses a member that Go's decoder would change.
func strict(line []byte, at span, key string) *fault {
	err := document.CheckJSON(at.of(line), document.Limits{Bytes: at.end - at.start + 1, Depth: deepest})
	if err == nil {
		return nil
	}
	return invalid(fmt.Sprintf("The member %s is not acceptable JSON: %s.", clipped(key), whatIsWrong(err)), strictHint)
}

// strictHint is what to do about strict JSON's refusals.
const strictHint = "Send each key once, valid Unicode text, and numbers that a 64-bit float keeps; quote larger ones."

// whatIsWrong tells an issue without its line, which is the only one.
func whatIsWrong(err error) string {
	var issue *document.Issue
	if !errors.As(err, &issue) {
		return err.Error()
	}
	if issue.Path == "" {
		return issue.Message
	}
	return "at " + issue.Path + ", " + issue.Message
}

// badKey is a key that stands twice, or in a case of letters that is not its own.
type badKey struct {
	key     string
	written string // the key that was meant, "" when key stands twice
}

func (b *badKey) fault(where string) *fault {
	if b.written != "" {
		return invalid(fmt.Sprintf("The key %s of the %s must be written %q.", clipped(b.key), where, b.written), "Keys are compared exactly.")
	}
	return invalid(fmt.Sprintf("The key %s stands twice in the %s.", clipped(b.key), where), "Send each key once; case does not tell keys apart here.")
}

// clipped quotes a key for a message.
func clipped(key string) string {
	const most = 60
	if len(key) > most {
		return strconv.Quote(key[:most]) + "..."
	}
	return strconv.Quote(key)
}

// collect finds the members of an object, and the first key that is ambiguous.
func collect(line []byte, at span, known map[string]string) (map[string]span, *badKey) {
	out := map[string]span{}
	seen := map[string]bool{}
	var bad *badKey
	eachMember(line, at, func(key string, value span) bool {
		low := folded(key)
		switch written, ok := known[low]; {
		case bad != nil:
		case seen[low]:
			bad = &badKey{key: key}
		case ok && written != key:
			bad = &badKey{key: key, written: written}
		}
		seen[low] = true
		out[key] = value
		return true
	})
	return out, bad
}

// integer is an id that can be given back as it came. Some clients write whole
// numbers with a point.
var integer = regexp.MustCompile(`^-?[0-9]{1,100}(\.0{1,20})?$`)

// checkID takes strings and integers.
func checkID(id json.RawMessage) *fault {
	switch {
	case string(id) == "null":
		return invalid("The id is null.", "Give every request an id of its own: a string or an integer.")
	case id[0] == '"':
		return strict(id, span{0, len(id)}, "id")
	case integer.Match(id):
		return nil
	}
	return invalid("The id is neither a string nor an integer.", "Send such an id.")
}

// answerable is an id as far as an answer can carry it: objects, lists, truth
// values and broken text cannot be ids.
func answerable(id json.RawMessage) json.RawMessage {
	switch {
	case id[0] == '"' && checkID(id) == nil:
	case id[0] == '-' || id[0] >= '0' && id[0] <= '9':
	default:
		return nil
	}
	return id
}

// looseID finds the id of a line that is not UTF-8, as far as it can be had.
func looseID(line []byte) json.RawMessage {
	m, _ := examine(bytes.ToValidUTF8(line, []byte("?")))
	if m.id == nil || bytes.IndexByte(m.id, '?') >= 0 {
		return nil // perhaps changed just now
	}
	return m.id
}

var (
	headID = regexp.MustCompile(`^\s*\{\s*("jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("[^"\\]{0,200}"|-?[0-9]{1,100})\s*,`)
	tailID = regexp.MustCompile(`,\s*"id"\s*:\s*("[^"\\]{0,200}"|-?[0-9]{1,100})\s*\}\s*$`)
)

// edgeID finds the id of a line of which only the beginning and the end were
// kept: the common clients write it first, or last.
func edgeID(head, tail []byte) json.RawMessage {
	for _, found := range [][][]byte{headID.FindSubmatch(head), tailID.FindSubmatch(tail)} {
		if found != nil && utf8.Valid(found[len(found)-1]) {
			return answerable(found[len(found)-1])
		}
	}
	return nil
}
