package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Methods that this package handles specially.
const (
	methodPing       = "ping"
	methodInitialize = "initialize"
	methodListen     = "subscriptions/listen"
	methodCallTool   = "tools/call"
	methodCancelled  = "notifications/cancelled"
)

type message struct {
	line   []byte
	id     json.RawMessage // as the client sent it; nil if absent or not usable in a response
	method string
	params json.RawMessage // nil if absent
	meta   json.RawMessage // of params
	// protocol is the decoded meta if it names a protocol version, else nil.
	protocol *mcp.Meta
	// name is the entry that tools/call, prompts/get or resources/read names. The next three are set for tools/call
	// only: its arguments, whether it repeats a call with answers to the server's questions, and a member of the
	// wrong type.
	name      string
	arguments json.RawMessage
	repeats   bool
	wrongType *Error
	// cancels is the requestId of notifications/cancelled.
	cancels json.RawMessage
	// response is true for a client's response to a server request. result is its result, nil for an error.
	response bool
	result   json.RawMessage
}

// Members of a message, and the members of params that the server acts on. They are matched exactly, since Go's
// decoder would accept them in any letter case.
var (
	topKeys   = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramKeys = []string{"name", "arguments", "uri", "requestId", "cursor", "_meta", "inputResponses", "requestState"}
)

// maxNesting limits nesting outside a tool's arguments, which have their own limit.
const maxNesting = 64

// maxMessageNesting is the nesting limit of encoding/json.
const maxMessageNesting = 10_000

// parseMessage reads one message. It rejects input that a decoder would accept but change: invalid UTF-8, escapes
// that are not text, duplicate keys, and ids that cannot be returned unchanged. A tool's arguments are left to the
// tool, which reports errors in a form that its caller sees.
func parseMessage(line []byte) (message, *Error) {
	if !utf8.Valid(line) {
		return message{id: guessID(line)}, newError(codeParse, "invalid_data", "The message is not valid UTF-8.", "Send UTF-8 text; encode binary data as base64.")
	}
	v, bad := document.ReadJSON(line, document.Limits{Bytes: len(line) + 1, Depth: maxMessageNesting, Lax: true, Spaced: true})
	if bad != nil {
		return message{}, newError(codeParse, "parse_error", "The message is not one valid JSON value, or nests too deep.", "Send one JSON-RPC message per line.")
	}
	if v.Kind() != document.Object {
		return message{}, invalidRequest("The message is not a JSON object.", "Send one JSON-RPC message per line; batches are not supported.")
	}
	top, ambiguous := collectMembers(v, topKeys)
	m := message{line: line, response: top.get("result").Kind() != 0 || top.get("error").Kind() != 0, result: top.get("result").Raw()}
	if id := top.get("id"); id.Kind() != 0 && (ambiguous == nil || ambiguous.key != "id") {
		m.id = answerableID(id.Raw())
	}
	if ambiguous != nil {
		return m, ambiguous.explain("message")
	}
	if err := m.readTop(top); err != nil || m.response {
		return m, err
	}
	switch params := top.get("params"); params.Kind() {
	case 0, document.Null:
		return m, nil
	case document.Object:
		return m, m.readParams(params)
	default:
		return m, newError(codeInvalidParams, "invalid_request", "The params of the message are not an object.", "Send params by name; the protocol has none by position.")
	}
}

// readTop reads and checks the top-level members other than params.
func (m *message) readTop(top members) *Error {
	method := top.get("method")
	if m.response && method.Kind() == 0 {
		return nil // deliver ignores a response that no call waits for
	}
	if id := top.get("id"); id.Kind() != 0 {
		if err := checkID(id.Raw()); err != nil {
			return err
		}
	}
	if string(top.get("jsonrpc").Raw()) != `"2.0"` {
		return invalidRequest("The message lacks jsonrpc: \"2.0\".", "Send JSON-RPC 2.0.")
	}
	switch {
	case m.response:
		return invalidRequest("The message is both a request and an answer.", "Send either method or result.")
	case method.Kind() == 0:
		return invalidRequest("The message has no method.", "Send a JSON-RPC request.")
	case method.Kind() != document.String:
		return invalidRequest("The method is not a string.", "Send the name of a method.")
	}
	m.method = method.Text()
	for key, value := range top.all {
		if key == "id" || key == "params" || value.Plain() {
			continue
		}
		if err := checkStrict(value.Raw(), key); err != nil {
			return err
		}
	}
	return nil
}

// readParams reads and checks params, except a tool's arguments.
func (m *message) readParams(v document.JSON) *Error {
	params, ambiguous := collectMembers(v, paramKeys)
	if ambiguous != nil {
		return ambiguous.explain("params")
	}
	m.params, m.meta = v.Raw(), params.get("_meta").Raw()
	if bytes.Contains(m.meta, []byte(mcp.MetaKeyProtocolVersion)) && json.Unmarshal(m.meta, &m.protocol) != nil {
		m.protocol = nil // rejected as a wrong type, or by mcp-go
	}
	for key, value := range params.all {
		switch {
		case key == "arguments" && m.method == methodCallTool:
			m.arguments = value.Raw()
			continue
		case key == "requestId" && m.method == methodCancelled:
			m.cancels = value.Raw()
			continue
		case key == "inputResponses", key == "requestState":
			m.repeats = true
		}
		if value.Plain() { // a plain value cannot be changed by a decoder
			continue
		}
		if err := checkStrict(value.Raw(), key); err != nil {
			return err
		}
	}
	name, meta := params.get("name"), params.get("_meta")
	if m.method == methodReadResource {
		name = params.get("uri")
	}
	m.name = name.Text()
	switch {
	case m.method != methodCallTool: // mcp-go checks the types
	case name.Kind() != 0 && name.Kind() != document.String:
		m.wrongType = wrongType("params.name", name)
	case meta.Kind() != 0 && meta.Kind() != document.Object && meta.Kind() != document.Null:
		m.wrongType = wrongType("params._meta", meta)
	}
	return nil
}

// wrongType returns the error that explainParams gives for a member that encoding/json cannot decode.
func wrongType(member string, v document.JSON) *Error {
	kind := v.Kind().String()
	return explainParams(&json.UnmarshalTypeError{Field: member, Value: kind[strings.IndexByte(kind, ' ')+1:]})
}

// checkStrict rejects a value that Go's decoder would change.
func checkStrict(value []byte, key string) *Error {
	err := document.CheckJSON(value, document.Limits{Bytes: len(value) + 1, Depth: maxNesting})
	if err == nil {
		return nil
	}
	return invalidRequest(fmt.Sprintf("The member %s is not acceptable JSON: %s.", Quote(key), describeIssue(err)), strictHint)
}

// strictHint is the hint for values that are not strict JSON.
const strictHint = "Send each key once, valid Unicode text, and numbers that a 64-bit float keeps; quote larger ones."

// describeIssue describes a strict JSON error without the line number, since a message has only one line.
func describeIssue(err error) string {
	var issue *document.Issue
	if !errors.As(err, &issue) {
		return err.Error()
	}
	if issue.Path == "" {
		return issue.Message
	}
	return "at " + issue.Path + ", " + issue.Message
}

// badKey is a duplicate key, or a known key in the wrong letter case.
type badKey struct {
	key     string
	written string // the expected spelling; "" for a duplicate key
}

func (b *badKey) explain(where string) *Error {
	if b.written != "" {
		return invalidRequest(fmt.Sprintf("The key %s of the %s must be written %q.", Quote(b.key), where, b.written), "Keys are compared exactly.")
	}
	return invalidRequest(fmt.Sprintf("Duplicate key %s in the %s.", Quote(b.key), where), "Send each key once; keys that differ only in case count as equal.")
}

// Quote quotes a key for use in a message, cutting a long one.
func Quote(key string) string {
	const most = 60
	if len(key) > most {
		return strconv.Quote(key[:most]) + "..."
	}
	return strconv.Quote(key)
}

// members holds an object's members: the known ones in the order of keys, and the others.
type members struct {
	keys   []string
	known  [8]document.JSON // the length of paramKeys
	others []member
}

type member struct {
	key   string
	value document.JSON
}

// get returns the value of a known member, or the zero JSON if it is absent.
func (m *members) get(key string) document.JSON { return m.known[slices.Index(m.keys, key)] }

// all yields every member.
func (m *members) all(yield func(key string, value document.JSON) bool) {
	for i, key := range m.keys {
		if m.known[i].Kind() != 0 && !yield(key, m.known[i]) {
			return
		}
	}
	for _, o := range m.others {
		if !yield(o.key, o.value) {
			return
		}
	}
}

// collectMembers returns the members of an object, and the first key that is duplicate or in the wrong letter case.
func collectMembers(v document.JSON, keys []string) (m members, bad *badKey) {
	m.keys = keys
	var seen map[string]bool // the other keys, folded by foldKey
	for name, value := range v.Members() {
		if i := slices.IndexFunc(keys, name.Is); i >= 0 {
			if bad == nil && m.known[i].Kind() != 0 {
				bad = &badKey{key: keys[i]}
			}
			m.known[i] = value
			continue
		}
		if bad != nil {
			continue
		}
		key := name.Text()
		low := foldKey(key)
		switch i := slices.IndexFunc(keys, func(k string) bool { return strings.EqualFold(k, key) }); {
		case seen[low], i >= 0 && m.known[i].Kind() != 0:
			bad = &badKey{key: key}
		case i >= 0:
			bad = &badKey{key: key, written: keys[i]}
		case seen == nil:
			seen = map[string]bool{}
		}
		if bad == nil {
			seen[low] = true
			m.others = append(m.others, member{key, value})
		}
	}
	return m, bad
}

// integer matches a numeric id that can be returned as it was sent. Some clients write whole numbers with a decimal
// point.
var integer = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-?[0-9]{1,100}(\.0{1,20})?$`) })

// checkID accepts strings and integers.
func checkID(id json.RawMessage) *Error {
	switch {
	case string(id) == "null":
		return invalidRequest("The id is null.", "Give every request its own id: a string or an integer.")
	case id[0] == '"':
		return checkStrict(id, "id")
	case integer().Match(id):
		return nil
	}
	return invalidRequest("The id is neither a string nor an integer.", "Send a string or an integer as the id.")
}

// answerableID returns id if a response can carry it, else nil. Objects, arrays, booleans and malformed strings
// cannot be ids.
func answerableID(id json.RawMessage) json.RawMessage {
	switch {
	case id[0] == '"' && checkID(id) == nil:
	case id[0] == '-' || id[0] >= '0' && id[0] <= '9':
	default:
		return nil
	}
	return id
}

// guessID returns the id of a line that is not UTF-8, or nil if it cannot be determined.
func guessID(line []byte) json.RawMessage {
	m, _ := parseMessage(bytes.ToValidUTF8(line, []byte("?")))
	if m.id == nil || bytes.IndexByte(m.id, '?') >= 0 {
		return nil // the replacement may have changed it
	}
	return m.id
}

var (
	headID = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\s*\{\s*("jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("[^"\\]{0,200}"|-?[0-9]{1,100})\s*,`)
	})
	tailID = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`,\s*"id"\s*:\s*("[^"\\]{0,200}"|-?[0-9]{1,100})\s*\}\s*$`)
	})
)

// findID finds the id of a line of which only the beginning and the end were kept. Common clients write the id first
// or last.
func findID(head, tail []byte) json.RawMessage {
	for _, found := range [][][]byte{headID().FindSubmatch(head), tailID().FindSubmatch(tail)} {
		if found != nil && utf8.Valid(found[len(found)-1]) {
			return answerableID(found[len(found)-1])
		}
	}
	return nil
}

// survivesFloat reports whether an id survives a decoder that reads numbers as 64-bit floats.
func survivesFloat(id json.RawMessage) bool {
	const exact = 1 << 53
	n, err := strconv.ParseInt(string(id), 10, 64)
	return id[0] == '"' || err == nil && -exact <= n && n <= exact && strconv.FormatInt(n, 10) == string(id)
}

// idKey returns a map key for an id. Strings are compared unescaped, and never equal numbers.
func idKey(id json.RawMessage) string {
	if len(id) > 0 && id[0] == '"' {
		return "s" + document.ReadTrusted(id).Text()
	}
	return "n" + string(id)
}

// foldKey returns a key as Go's decoder compares it: the decoder matches struct fields in any letter case, so keys
// that differ only in case are the same key.
func foldKey(key string) string {
	return strings.Map(func(r rune) rune {
		for { // find the smallest rune of its case-folding orbit
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, key)
}
