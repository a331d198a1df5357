package engine

import (
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// CallRequest asks to call another server's tool through its gate.
type CallRequest struct {
	ID string // the instance
	// Gate is the public name of the tool, by which calls are counted. Tool is its name on the server Upstream.
	// Pin is the digest of the tool definition that it was pinned to.
	Gate, Upstream, Tool, Pin string
	// Arguments are sent exactly as given: a JSON object. Only a keyed digest is recorded.
	Arguments json.RawMessage
	// MaxArguments limits their size in bytes, up to Limits.Arguments; 0 means that limit.
	MaxArguments int
	// States are the states in which the call is allowed.
	States []string
	// Action is performed with Data before the call; "" only records the call. SettleCall performs Success
	// or Error afterwards; "" performs nothing. All three must be actions of the definition that the
	// instance is pinned to, or the call is refused.
	Action         string
	Data           json.RawMessage // a JSON object; nil is {}
	Success, Error string
	// Bound lists arguments that must equal frozen fields of the context.
	Bound []Binding
	// MaxCalls limits the calls during one visit to the state; 0 means no limit. Moves that the gate's own
	// calls make do not begin a new visit.
	MaxCalls int
	// Repeatable is the operator's assurance that the tool performs a call with the same id only once,
	// however often it is sent. Such a call may be sent again if its outcome is unknown.
	Repeatable bool
	// Timeout limits how long the call may stay open; then any process settles it as unknown.
	Timeout time.Duration
	Key     string // idempotency key, "" for none
	// Hold is called with the call's id before the call is recorded. Set it if the caller's process can prove,
	// as long as it runs, that it is making the call (see Config.Abandoned). Leave it nil if others settle the
	// call.
	Hold func(call string)
	// CheckOnly judges and records nothing. CallGo then means only that the call violates no rule of the gate,
	// and that no identical call is unsettled, except one that may be repeated.
	CheckOnly bool
	Exempt    bool // from quotas: the call is made for the operator
}

// Binding requires an argument to equal a field of the context; both are JSON pointers.
type Binding = workflow.Binding

// CallAnswer is the next step for a caller of BeginCall.
type CallAnswer string

// The answers. Only CallGo allows the call to be sent.
const (
	// CallGo: send the arguments once, with CallID, then settle the call.
	CallGo CallAnswer = "go"
	// CallRefused: Decision gives the reason and what to do first.
	CallRefused CallAnswer = "refused"
	// CallParked: a person decides; Review names the review. Once it is approved, the same call gets
	// CallGo.
	CallParked CallAnswer = "parked"
	// CallKnown: the same call was made before. Outcome is how it ended, "" while it is open.
	CallKnown CallAnswer = "known"
)

// CallResult answers a CallRequest.
type CallResult struct {
	Position
	Answer CallAnswer `json:"answer"`
	// CallID must be sent with the call; it is "" if the call was refused or parked.
	CallID   string      `json:"callId,omitempty"`
	Outcome  CallOutcome `json:"callOutcome,omitempty"`
	Deadline time.Time   `json:"deadline,omitzero"`
	// Decision is that of the action, or the refusal; zero if the call was only recorded.
	Decision Decision       `json:"decision"`
	Review   *ReviewSummary `json:"review,omitempty"`
	Replayed bool           `json:"replayed,omitempty"`
}

// CallOutcome is how a call ended.
type CallOutcome = record.CallOutcome

// The outcomes.
const (
	CallOK      = record.CallOK
	CallError   = record.CallError
	CallNotSent = record.CallNotSent
	CallUnknown = record.CallUnknown
)

// SettleRequest reports how a call ended.
type SettleRequest struct {
	ID      string // the instance
	CallID  string
	Outcome CallOutcome
	// Result is the tool's answer, unmodified; only a keyed digest is recorded.
	Result []byte
	// Data is the data of the action after the call: Success after CallOK, Error after CallError and
	// CallNotSent. A JSON object; nil is {}.
	Data json.RawMessage
}

// SettleResult answers a SettleRequest. The call is settled in any case. Moved reports whether the action
// after it was performed; if it was refused, Decision gives the reason.
type SettleResult struct {
	Position
	CallID  string      `json:"callId"`
	Outcome CallOutcome `json:"callOutcome"`
	// Action is the action after the call, "" for none.
	Action   string   `json:"action,omitempty"`
	Moved    bool     `json:"moved"`
	Decision Decision `json:"decision"`
	// Review is the review that an unknown outcome opened.
	Review *ReviewSummary `json:"review,omitempty"`
	// Replayed reports that the call was settled before; Outcome is the recorded one.
	Replayed bool `json:"replayed,omitempty"`
}

// CallSummary is an open call, or one whose outcome is unknown.
type CallSummary struct {
	CallID    string    `json:"callId"`
	Tool      string    `json:"tool"`
	Principal string    `json:"principal"`
	Deadline  time.Time `json:"deadline"`
	// Unknown reports that it is not known whether the call happened: review ReviewID waits for a person.
	Unknown  bool   `json:"unknown,omitempty"`
	ReviewID string `json:"reviewId,omitempty"`
}
