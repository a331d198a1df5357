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
	// Gate is the public name of the tool, by which calls are counted; Upstream and Tool name
	// it on the other server, Pin is the digest of the definition it was pinned to.
	Gate, Upstream, Tool, Pin string
	// Arguments are exactly what will be sent, a JSON object. A keyed digest of them is recorded.
	Arguments json.RawMessage
	// MaxArguments is how many bytes they may have, up to Limits.Arguments; 0 is that.
	MaxArguments int
	// States are those in which the call is allowed.
	States []string
	// Action is performed with Data before the call; "" only records the call. Success and Error
	// are performed by SettleCall; "" performs nothing. All are actions of the definition that the
	// instance is pinned to, or the call is refused.
	Action         string
	Data           json.RawMessage // a JSON object; nil is {}
	Success, Error string
	// Bound are arguments that must equal frozen fields of the context.
	Bound []Binding
	// MaxCalls is how many calls one passage through the state is worth; 0 is any number. What the
	// gate's own calls move begins no new passage.
	MaxCalls int
	// Repeatable is the operator's word that the tool does a call with the same id once however
	// often it is sent: one whose outcome is unknown may be sent again.
	Repeatable bool
	// Timeout is how long the call may stay open: after that any process settles it as unknown.
	Timeout time.Duration
	Key     string // idempotency key, "" for none
	// Hold is called with the id of the call before it is recorded, by a caller that can show for as long as it lives that
	// it makes the call (Config.Abandoned); nil for a call that others settle.
	Hold func(call string)
	// CheckOnly records and judges nothing: CallGo then only says that the call was not made before and that no rule
	// of the gate is against it.
	CheckOnly bool

	exempt bool // from quotas: the operator has it done
}

// Binding says which argument must equal which field of the context; both are JSON pointers.
type Binding = workflow.Binding

// CallAnswer says what a caller of BeginCall does now.
type CallAnswer string

// The answers. Only CallGo lets the call be sent.
const (
	// CallGo: send the arguments, once, with CallID, and then settle the call.
	CallGo CallAnswer = "go"
	// CallRefused: Decision says why, and what to do first.
	CallRefused CallAnswer = "refused"
	// CallParked: a person decides; Review names the review. Once it is approved the same call
	// may be made again, and goes.
	CallParked CallAnswer = "parked"
	// CallKnown: the same call was made before. Outcome says how it ended, "" while it is open.
	CallKnown CallAnswer = "known"
)

// CallResult answers a CallRequest.
type CallResult struct {
	Position
	Answer CallAnswer `json:"answer"`
	// CallID is sent with the call; "" when it was refused or parked.
	CallID   string      `json:"callId,omitempty"`
	Outcome  CallOutcome `json:"callOutcome,omitempty"`
	Deadline time.Time   `json:"deadline,omitzero"`
	// Decision is that of the action, or the refusal; zero when the call was only recorded.
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

// SettleRequest says how a call ended.
type SettleRequest struct {
	ID      string // the instance
	CallID  string
	Outcome CallOutcome
	// Result is the tool's answer as it came; a keyed digest of it is recorded.
	Result []byte
	// Data is that of the action after it: the call's Success after CallOK, its Error after
	// CallError and CallNotSent. A JSON object; nil is {}.
	Data json.RawMessage
}

// SettleResult answers a SettleRequest. The call is settled in any case; Moved says whether the
// action after it was performed, and Decision, where there was one, why not.
type SettleResult struct {
	Position
	CallID  string      `json:"callId"`
	Outcome CallOutcome `json:"callOutcome"`
	// Action is the one after the call, "" for none.
	Action   string   `json:"action,omitempty"`
	Moved    bool     `json:"moved"`
	Decision Decision `json:"decision"`
	// Review is the one that an unknown outcome opened.
	Review *ReviewSummary `json:"review,omitempty"`
	// Replayed says that the call was settled before; Outcome is the recorded one.
	Replayed bool `json:"replayed,omitempty"`
}

// CallSummary is an open call, or one whose outcome is unknown.
type CallSummary struct {
	CallID    string    `json:"callId"`
	Tool      string    `json:"tool"`
	Principal string    `json:"principal"`
	Deadline  time.Time `json:"deadline"`
	// Unknown says that nobody knows whether it happened: ReviewID waits for a person.
	Unknown  bool   `json:"unknown,omitempty"`
	ReviewID string `json:"reviewId,omitempty"`
}
