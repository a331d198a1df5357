// Package upstream is the only access to other MCP servers: it determines which exist, which of their items a
// principal may use, and how they are called.
//
// Guarantees:
//   - Only items that an operator allowed and pinned are listed or called. A tool whose definition differs from its
//     pin is neither listed nor callable.
//   - Lists come from pins and never wait for a server.
//   - An upstream's answer is passed on byte for byte, within limits of size and time.
//   - A call that may have taken effect is never reported as one that did not, and never repeated.
//   - An upstream that hangs, floods or ends affects only its own callers.
//   - The caller's credentials never reach an upstream.
//   - A gated tool is called only after the engine has permitted and recorded the call. The outcome is recorded even
//     if the caller has gone.
//
// It must never judge content itself, write the pins file without an operator who accepts the change, or decide by what
// a server claims about itself (an annotation, a name). Evidence, chains and the gateway use it; it depends on none of
// them.
package upstream

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/gate"
)

// ModernVersion is the version of MCP without sessions.
const ModernVersion = "2026-07-28"

// Kind is a kind of item.
type Kind string

// The kinds.
const (
	KindTool     Kind = "tool"
	KindResource Kind = "resource"
	KindTemplate Kind = "template"
	KindPrompt   Kind = "prompt"
)

// Kinds lists all kinds in display order.
var Kinds = []Kind{KindTool, KindResource, KindTemplate, KindPrompt}

// Item is one tool, resource, template or prompt of an upstream.
type Item struct {
	Upstream string
	Kind     Kind
	// Name is the upstream's own name: a name, a URI or a URI template.
	Name string
	// Public is the name that clients of gavel use.
	Public string
	// Raw is the pinned definition, byte for byte, under the upstream's own name.
	Raw json.RawMessage
	// Gate binds a tool to a workflow, or is nil.
	Gate *gate.Gate
}

// Request is one request to an upstream.
type Request struct {
	Upstream string
	// Method is tools/call, resources/read, prompts/get or completion/complete.
	Method string
	// Kind and Name identify the item, by the upstream's own name or URI.
	Kind Kind
	Name string
	// Params are the client's params: an object, or empty. Name replaces the name or URI in them, and members of
	// _meta that belong to the client's session are replaced. Everything else reaches the upstream byte for byte.
	Params json.RawMessage
	// Progress receives the params of each notifications/progress of the call, without the token. It must not block.
	// If nil, progress still extends the call's deadline.
	Progress func(params json.RawMessage)
	// Capabilities are the client's declared capabilities for questions in an input_required result; nil means none.
	// They are not sent to upstreams that use initialize.
	Capabilities json.RawMessage
	// Trace is the traceparent to pass on, or "".
	Trace string
}

// Reply is an upstream's answer. Exactly one of Result and Error is set, byte for byte as received, except that a
// requestState is sealed.
type Reply struct {
	Result json.RawMessage
	Error  json.RawMessage
}

// Change reports that a list may have changed.
type Change struct {
	Upstream string
	Kind     Kind
	// Affects reports whether a principal's list may have changed.
	Affects func(engine.Principal) bool
}

// Code is the stable, machine-readable code of an Error.
type Code string

// The error codes.
const (
	// CodeUnknown means that the item does not exist or is not allowed. The caller cannot tell which.
	CodeUnknown Code = "unknown_upstream_item"
	// CodeInvalid means that the upstream could interpret the params differently from gavel.
	CodeInvalid Code = "invalid_argument"
	// CodeDrifted means that the item's definition differs from its pin.
	CodeDrifted Code = "tool_drifted"
	// CodeUnavailable means that the upstream cannot be reached or started.
	CodeUnavailable Code = "upstream_unavailable"
	// CodeBusy means that the upstream has the maximum number of calls in flight.
	CodeBusy Code = "upstream_busy"
	// CodeTimeout means that the call got no answer in time.
	CodeTimeout Code = "upstream_timeout"
	// CodeLost means that the upstream ended or closed the connection before it answered.
	CodeLost Code = "upstream_lost"
	// CodeGateClosed means that the workflow of the gated tool is not in a state in which it may be called.
	CodeGateClosed Code = "gate_closed"
	// CodeCallRefused means that the gated call was judged and refused.
	CodeCallRefused Code = "call_refused"
	// CodeCallParked means that the gated call waits for a person.
	CodeCallParked Code = "call_parked"
	// CodeCallRepeated means that the gated call was made before.
	CodeCallRepeated Code = "call_repeated"
	// CodeProtocol means that the upstream's answer is not valid MCP, or exceeds a limit.
	CodeProtocol Code = "upstream_protocol"
)

// Error explains why a call has no reply.
type Error struct {
	Code     Code
	Upstream string
	Message  string // one sentence, without values except the server's own words
	Hint     string // what to do next
	// MayHaveRun reports that the upstream may have acted on the request.
	MayHaveRun bool
	// Retryable reports that the same call may succeed later. It is set only if Code does not already imply that.
	Retryable bool
	// Standing is the position of a gated call's workflow; nil if unknown.
	Standing *Standing
	// Outcome is the outcome of the earlier, identical call; "" while it is open.
	Outcome engine.CallOutcome
	// RetryAfter is how long to wait before a retry can help; 0 if unknown.
	RetryAfter time.Duration
	// Err is the cause; its text is only for logs.
	Err error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// newError returns an error about an upstream.
func newError(code Code, upstream, hint, format string, args ...any) *Error {
	return &Error{Code: code, Upstream: upstream, Hint: hint, Message: fmt.Sprintf(format, args...)}
}
