// Package upstream is the one door to other MCP servers: which there are, what of theirs a
// principal may use, and how it is called.
//
// It promises that nothing is listed or called that no operator allowed and pinned: a tool
// whose definition is not the pinned one is neither listed nor callable. Lists come from pins
// and never wait for a server. What an upstream answers is handed on byte for byte, within
// limits of size and time, and a call that may have been done is never reported as one that
// was not, nor repeated. One upstream that hangs, floods or ends holds up nobody but its own
// callers. The caller's credentials never reach an upstream. A tool that has a gate is called only
// when the engine let it and recorded that, and what came of it is recorded whoever waits.
//
// It must never judge what passes itself, write the file of pins while it serves, or decide by what a
// server says of itself (an annotation, a name). Evidence, chains and the gateway use it; it
// knows none of them.
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

// Kind is a kind of thing that an upstream has.
type Kind string

// The kinds.
const (
	KindTool     Kind = "tool"
	KindResource Kind = "resource"
	KindTemplate Kind = "template"
	KindPrompt   Kind = "prompt"
)

// Kinds are all of them, in the order in which they are shown.
var Kinds = []Kind{KindTool, KindResource, KindTemplate, KindPrompt}

// Item is one thing of an upstream's.
type Item struct {
	Upstream string
	Kind     Kind
	// Name is what the upstream calls it: a name, a URI, or a template of URIs.
	Name string
	// Public is what clients of gavel call it.
	Public string
	// Raw is its definition as it was pinned, byte for byte, under the upstream's own name.
	Raw json.RawMessage
	// Gate binds a tool to a workflow; nil where none does.
	Gate *gate.Gate
}

// Request is one request to an upstream.
type Request struct {
	Upstream string
	// Method is tools/call, resources/read, prompts/get or completion/complete.
	Method string
	// Kind and Name say what is asked for, by the upstream's own name or URI.
	Kind Kind
	Name string
	// Params are the client's, an object or nothing. The name or URI in them is replaced by Name,
	// and of _meta what belongs to the session of the client; all else reaches the upstream byte
	// for byte.
	Params json.RawMessage
	// Progress gets the params of each notifications/progress of the call, without the token. It
	// must not block. Progress extends the call's deadline even where this is nil.
	Progress func(params json.RawMessage)
	// Capabilities are what the client of a request can be asked for in an input_required result,
	// as it declares them; nil is nothing. Upstreams of the era of initialize are told nothing.
	Capabilities json.RawMessage
	// Trace is the traceparent to pass on, "" for none.
	Trace string
}

// Reply is what an upstream answered. Result or Error is set, byte for byte as it stood in
// the frame, but for a requestState, which is sealed.
type Reply struct {
	Result json.RawMessage
	Error  json.RawMessage
}

// Change says that a list may have changed.
type Change struct {
	Upstream string
	Kind     Kind
	// Affects reports whether the list of a principal may have changed.
	Affects func(engine.Principal) bool
}

// Code is the stable machine code of an Error.
type Code string

// The codes.
const (
	// CodeUnknown is of an item that is not there, or not allowed: a caller cannot tell.
	CodeUnknown Code = "unknown_upstream_item"
	// CodeInvalid is of params that the upstream could read otherwise than gavel.
	CodeInvalid Code = "invalid_argument"
	// CodeDrifted is of an item that is no longer as it was pinned.
	CodeDrifted Code = "tool_drifted"
	// CodeUnavailable is of an upstream that cannot be reached or started.
	CodeUnavailable Code = "upstream_unavailable"
	// CodeBusy is of an upstream with as many calls in flight as it may have.
	CodeBusy Code = "upstream_busy"
	// CodeTimeout is of a call that got no answer in time.
	CodeTimeout Code = "upstream_timeout"
	// CodeLost is of a call whose upstream ended or cut the connection before it answered.
	CodeLost Code = "upstream_lost"
	// CodeGateClosed is of a gated tool whose workflow is in no state in which it may be called.
	CodeGateClosed Code = "gate_closed"
	// CodeCallRefused is of a gated call that was judged and refused.
	CodeCallRefused Code = "call_refused"
	// CodeCallParked is of a gated call that waits for a person.
	CodeCallParked Code = "call_parked"
	// CodeCallRepeated is of a gated call that was made before.
	CodeCallRepeated Code = "call_repeated"
	// CodeProtocol is of an upstream whose answer is not MCP, or more than may pass.
	CodeProtocol Code = "upstream_protocol"
)

// Error is why a call has no reply.
type Error struct {
	Code     Code
	Upstream string
	Message  string // one sentence, without values but for the server's own words
	Hint     string // what to do next
	// MayHaveRun says that the upstream may have done what was asked for.
	MayHaveRun bool
	// Retryable says that the same call may succeed later; what Code says of itself is not repeated
	// here.
	Retryable bool
	// Standing is where the workflow of a gated call stands; nil where that is not known.
	Standing *Standing
	// Outcome is how the call ended that was made before, "" while it is open.
	Outcome engine.CallOutcome
	// RetryAfter is when trying again can help; 0 when unknown.
	RetryAfter time.Duration
	// Err is the cause; its text is for logs.
	Err error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// newError returns an error about an upstream.
func newError(code Code, upstream, hint, format string, args ...any) *Error {
	return &Error{Code: code, Upstream: upstream, Hint: hint, Message: fmt.Sprintf(format, args...)}
}
