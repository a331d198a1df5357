package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/validators/document"
)

// JSON-RPC error codes used in responses.
const (
	codeParse          = mcp.PARSE_ERROR
	codeInvalidRequest = mcp.INVALID_REQUEST
	codeInvalidParams  = mcp.INVALID_PARAMS
	codeInternal       = mcp.INTERNAL_ERROR
	codeNotNow         = -32000
)

// Error is a JSON-RPC error. If a tool, resource or prompt returns one, the client receives it unchanged.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`

	raw json.RawMessage // the error object as another server sent it
}

func (e *Error) Error() string { return e.Message }

// ErrorData is the data member of this server's errors. Tool errors carry the same members.
type ErrorData struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// newError returns an error with a stable code name, a message, and a hint about what to do next.
func newError(code int, name, message, hint string) *Error {
	return &Error{Code: code, Message: message + " " + hint, Data: ErrorData{name, message, hint}}
}

func invalidRequest(message, hint string) *Error { return invalidAs("invalid_request", message, hint) }

// invalidAs is like invalidRequest, but with another code name.
func invalidAs(name, message, hint string) *Error {
	return newError(codeInvalidRequest, name, message, hint)
}

// explain converts err to the error that the client receives. An err that is not an *Error is logged, and the client
// sees only a generic internal error.
func (w *Wire) explain(ctx context.Context, what string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	w.cfg.Logger.ErrorContext(ctx, "could not answer", "asked", what, "code", "internal", "cause", err.Error())
	return newError(codeInternal, "internal", "An internal error kept gavel from answering.", "The log has the details.")
}

// noteError stores a handler's error in the request, because mcp-go reduces every handler error to text with a single
// code. If mcp-go cannot decode the params, noteError replaces its Go-specific message.
func noteError(ctx context.Context, _ any, _ mcp.MCPMethod, _ any, err error) {
	r := requestOf(ctx)
	if r == nil {
		return
	}
	var unparsable *server.UnparsableMessageError
	if !errors.As(err, &r.failure) && errors.As(err, &unparsable) {
		r.failure = explainParams(err)
	}
}

// explainParams describes, in the protocol's terms, why params cannot be decoded.
func explainParams(err error) *Error {
	message := "The params of the request do not fit its method."
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		message = fmt.Sprintf("The member %s of the request must not be of the type %s.", wrong.Field, typeName(wrong.Value))
	}
	return newError(codeInvalidParams, "invalid_request", message, "See the method in the specification of the Model Context Protocol.")
}

// typeName returns the JSON name for a type name of Go's decoder.
func typeName(word string) string {
	if word == "bool" {
		return "boolean"
	}
	return word
}

// maxAnswer limits one outgoing message, in bytes: clients of the TypeScript SDK disconnect if a message exceeds 10
// MiB.
const maxAnswer = 9 << 20

// line encodes the response to a request. tool reports whether the request was a tools/call.
func (o outcome) line(id json.RawMessage, tool bool) []byte {
	if o.err != nil {
		return o.err.line(id)
	}
	doc, ok := o.result.(json.RawMessage) // the result of a tool call is already encoded
	var err error
	if !ok {
		doc, err = json.Marshal(o.result)
	}
	if err != nil {
		return newError(codeInternal, "internal", "The answer could not be encoded.", "Report it.").line(id)
	}
	if len(doc) <= maxAnswer {
		return responseLine(id, "result", doc)
	}
	e := newError(codeInternal, "too_large", fmt.Sprintf("The answer has %d bytes; the limit for one message is %d.", len(doc), maxAnswer), "Ask for fewer entries at a time, with limit.")
	if !tool {
		return e.line(id)
	}
	content := encodeJSON(map[string]any{"error": struct {
		ErrorData
		Retryable bool `json:"retryable"`
	}{ErrorData: e.Data.(ErrorData)}}) //nolint:forcetypeassert // set by newError
	doc, _ = encodeResult(&mcp.CallToolResult{ // these values always encode
		Content: []mcp.Content{mcp.NewTextContent("ERROR too_large: " + e.Message), mcp.NewTextContent(string(content))},
		IsError: true, StructuredContent: content,
		Result: mcp.Result{ResultType: mcp.ResultTypeComplete}, // older clients ignore it
	})
	return responseLine(id, "result", doc)
}

// line encodes an error response. A nil id is sent as null.
func (e *Error) line(id json.RawMessage) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	doc, err := []byte(e.raw), error(nil)
	if doc == nil {
		doc, err = json.Marshal(e)
	}
	if err != nil { // a tool's Data may fail to encode
		doc = encodeJSON(&Error{Code: e.Code, Message: e.Message})
	}
	return responseLine(id, "error", doc)
}

func responseLine(id json.RawMessage, key string, doc []byte) []byte {
	line := make([]byte, 0, len(id)+len(doc)+len(key)+40)
	line = append(line, `{"jsonrpc":"2.0","id":`...)
	line = append(line, id...)
	line = append(line, `,"`+key+`":`...)
	line = append(line, doc...)
	return append(line, "}\n"...)
}

// notificationLine encodes a notification. stream is the id of the subscriptions/listen request that it belongs to,
// or nil.
func notificationLine(method string, stream json.RawMessage, params map[string]any) []byte {
	if params == nil {
		params = map[string]any{}
	}
	if stream != nil {
		params["_meta"] = map[string]any{mcp.MetaKeySubscriptionID: stream}
	}
	return encodeLine(map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "method": method, "params": params})
}

func encodeLine(v any) []byte { return append(encodeJSON(v), '\n') }

// encodeJSON encodes values that this package built, which cannot fail. It does not escape <, > and &.
func encodeJSON(v any) json.RawMessage {
	doc, err := document.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("mcp: encode %T: %v", v, err))
	}
	return doc
}
