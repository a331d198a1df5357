// Package llm asks a language model for a judgement over the OpenAI-compatible chat completions API, and reads
// its answer.
//
// It promises:
//
//   - It returns an answer only if a strict reading leaves no doubt about its meaning.
//   - Every failure has a Class, which determines whether a retry helps and who is responsible.
//   - No call outlives its deadline.
//   - A dead or slow endpoint costs its callers next to nothing.
//
// It knows only the form of an answer, not the subject of the judgement. It must never:
//
//   - turn a failure into an answer,
//   - repair JSON,
//   - guess a verdict from prose or from a model's thinking,
//   - write a key, a prompt or an answer to a log.
package llm

import (
	"context"
	"encoding/json"
	"time"
)

// Completer asks a model once, as the caller sees it. The error is an *Error, unless the caller ended its
// context: then the context's error is returned unchanged (errors.Is context.Canceled or DeadlineExceeded).
type Completer interface {
	Complete(ctx context.Context, req Request) (Reply, error)
}

// CompleterFunc is a function that implements Completer.
type CompleterFunc func(ctx context.Context, req Request) (Reply, error)

// Complete calls f.
func (f CompleterFunc) Complete(ctx context.Context, req Request) (Reply, error) { return f(ctx, req) }

// Request is one question.
type Request struct {
	// Model is the Name of a configured Model; "" means the first one. Decorators below the chain always see a
	// name.
	Model string
	// Alone disables the fallbacks for this request.
	Alone bool
	// Began, if not zero, is when the first question of the same decision was asked; all its questions share
	// one deadline.
	Began time.Time
	// System and User are the two messages. System is the same for every case of a transition, so providers
	// can cache it.
	System, User string
	// Dialogue, if not empty, is answered in plain text in Reply.Text. Nothing is judged, and System, User,
	// Shape, Schema, Nonce and Check are ignored.
	Dialogue []Message
	// Shape is appended to System only if the endpoint does not enforce Schema.
	Shape string
	// Schema is the JSON Schema of the answer, in the subset that enforcing providers accept: all properties
	// required, no additional ones. The order of its keys is preserved in requests.
	Schema json.RawMessage
	// Nonce must be repeated in the answer if nothing else ties the answer to the question (RungJSONObject and
	// RungPrompt). "" means none.
	Nonce string
	// MaxTokens limits the answer; 0 means the configuration's default.
	MaxTokens int
	// Complaint, if not "", describes the problem of an earlier answer to the same question. It is sent with
	// the question.
	Complaint string
	// Check, if not nil, returns the problem of a well-formed answer, in words for the model. The question is
	// then asked once more; if Check fails again, the error is ClassInconsistent, or ClassIncomplete if it wraps
	// ErrIncomplete.
	Check func(Answer) error
	// Key identifies the question for the cache and for sharing one call between callers; "" disables both.
	// Questions with the same Key must be identical except for Nonce and random markers.
	Key string
	// Keep, if not nil, reports whether an answer may be cached for later questions with this Key.
	Keep func(Answer) bool
	// Caller is the principal for whom the model is asked. The quality latch is separate for each caller:
	// bad data from one caller must not lock out another.
	Caller string
}

// Message is one message of a Request.Dialogue.
type Message struct {
	Role string // user or assistant
	Text string
}

// Answer is a model's answer: parsed, but not trusted. Code derives the outcome from it.
type Answer struct {
	// Approved and Confidence (0..1) are always present; the others may be empty.
	Approved   bool        `json:"approved"`
	Confidence float64     `json:"confidence"`
	Criteria   []Criterion `json:"criteria,omitempty"`
	// Keyed is true if each criterion is answered under its id. Approved is then false unless all are met or graded.
	Keyed bool `json:"keyed,omitempty"`
	// NoCriteria is true if the answer has no "criteria" member and so judges the move as a whole, as
	// judges of the Generic DFA server do.
	NoCriteria bool `json:"noCriteria,omitempty"`
	// InjectionSuspected is true if the model suspects that the data tries to instruct it.
	InjectionSuspected bool     `json:"injectionSuspected,omitempty"`
	Reasoning          string   `json:"reasoning,omitempty"`
	Violations         []string `json:"violations,omitempty"`
	Suggestions        []string `json:"suggestions,omitempty"`
}

// Criterion is the model's answer to one criterion.
type Criterion struct {
	ID string `json:"id"`
	// Evidence is a verbatim quote or a JSON pointer, or "".
	Evidence string `json:"evidence,omitempty"`
	// Why is the model's explanation in one sentence, or "" if it was not asked for.
	Why string `json:"why,omitempty"`
	// Status is met, not_met or cannot_assess; or graded, and Grade is 0..99.
	Status string `json:"status"`
	Grade  int    `json:"grade,omitempty"`
}

// The statuses of a criterion. Any other status is read as StatusCannotAssess.
const (
	StatusMet          = "met"
	StatusNotMet       = "not_met"
	StatusCannotAssess = "cannot_assess"
	StatusGraded       = "graded"

	// WordContradicted and WordNotShown are other words for StatusNotMet and StatusCannotAssess that models
	// do not confuse.
	WordContradicted = "contradicted"
	WordNotShown     = "not_shown"
)

// Reply is an Answer with details about its origin.
type Reply struct {
	Answer Answer `json:"answer"`
	// Text is the answer to a Request.Dialogue.
	Text string `json:"text,omitempty"`
	// Lenient is true if the answer was clear but not in the requested form: fenced, wrapped in prose,
	// numbers as strings.
	Lenient bool `json:"lenient,omitempty"`
	// Model is the Name of the configured model that answered. Reported is the endpoint's name for it, and
	// Fingerprint its system_fingerprint.
	Model       string `json:"model"`
	Reported    string `json:"reported,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Endpoint is the host that answered.
	Endpoint string `json:"endpoint,omitempty"`
	Rung     Rung   `json:"rung,omitempty"`
	// Usage covers all Calls, including unusable answers. It is nil if it is unknown for one of them, because
	// unknown is not zero.
	Usage *Usage `json:"usage,omitempty"`
	// CostUSD is nil if the usage or a price is unknown.
	CostUSD *float64 `json:"costUSD,omitempty"`
	// Calls is the number of HTTP requests for this reply, including negotiation and failures. It is 0 for a
	// cache hit.
	Calls int `json:"calls"`
	// Reasked is true if the first answer could not be used.
	Reasked bool `json:"reasked,omitempty"`
	// CacheHit is true if no model was asked. Shared is true if the reply comes from another caller's call.
	CacheHit bool `json:"cacheHit,omitempty"`
	Shared   bool `json:"shared,omitempty"`
	// Breaker is the state of the circuit breaker before the call: closed or half-open.
	Breaker string        `json:"breaker,omitempty"`
	Took    time.Duration `json:"-"`
}

// Usage counts tokens.
type Usage struct {
	Prompt     int `json:"prompt"`
	Completion int `json:"completion"`
	Cached     int `json:"cached,omitempty"`    // of Prompt
	Reasoning  int `json:"reasoning,omitempty"` // of Completion
}

// Rung is a method of making an endpoint answer in the right form.
type Rung string

// The rungs of the capability ladder, best first.
const (
	RungJSONSchema Rung = "json_schema"
	RungTool       Rung = "tool" // one tool, required
	RungJSONObject Rung = "json_object"
	RungPrompt     Rung = "prompt"
)

// ToolName is the name of the only tool that a model can call.
const ToolName = "submit_verdict"

// Exchange is one recorded HTTP answer of an endpoint.
type Exchange struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"` // lower-case names
	Body    string            `json:"body"`
	// Nonce is the request's nonce, or "".
	Nonce string `json:"nonce,omitempty"`
}
