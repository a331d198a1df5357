// Package llm asks a language model for a judgement over the OpenAI-compatible
// chat completions API, and reads its answer.
//
// It promises that an answer is returned only if it was read strictly enough that
// nobody can have meant another one, that every failure has a Class which says
// whether trying again helps and whose fault it is, that no call outlives its
// deadline, and that a dead or slow endpoint costs its callers next to nothing.
//
// It knows the form of an answer and nothing of what is judged: it never turns a
// failure into an answer, never repairs JSON, never guesses a verdict out of
// prose or out of a model's thinking, and never writes a key, a prompt or an
// answer to a log.
package llm

import (
	"context"
	"encoding/json"
	"time"
)

// Completer asks a model once, as far as its caller can tell. The error is an
// *Error, except that a context of the caller's that has ended is returned as it
// is (errors.Is context.Canceled or DeadlineExceeded).
type Completer interface {
	Complete(ctx context.Context, req Request) (Reply, error)
}

// CompleterFunc is a function as a Completer.
type CompleterFunc func(ctx context.Context, req Request) (Reply, error)

// Complete calls f.
func (f CompleterFunc) Complete(ctx context.Context, req Request) (Reply, error) { return f(ctx, req) }

// Request is one question.
type Request struct {
	// Model is the Name of a configured Model; "" is the first one. Decorators below
	// the chain always see a name.
	Model string
	// Alone asks no other model when this one cannot be had.
	Alone bool
	// Background makes way: it takes a place only if one is free and none other like it is under
	// way, and is given up, as ClassBusy, when a question without it has none.
	Background bool
	// Began, when not zero, is when the first of several questions of one decision was asked: they
	// have one deadline together. Share above 1 leaves part of the time that is left for questions
	// that come after this one: it gets one part of so many.
	Began time.Time
	Share int
	// System and User are the two messages. System is the same for every case of a
	// transition, so that providers can cache it.
	System, User string
	// Dialogue, when not empty, is answered in plain text, which is Reply.Text: nothing is judged, and
	// System, User, Shape, Schema, Nonce and Check are not read.
	Dialogue []Message
	// Shape describes the answer in words, with the schema and an example. It is
	// appended to System where the endpoint does not enforce Schema, and only there.
	Shape string
	// Schema is the JSON Schema of the answer, in the subset that every enforcing
	// provider takes: all properties required, no additional ones, no bounds. Its key
	// order is kept on the wire.
	Schema json.RawMessage
	// Nonce must be repeated in the answer where nothing else ties the answer to the
	// question (rungs RungJSONObject and RungPrompt). "" asks for none.
	Nonce string
	// MaxTokens bounds the answer; 0 is the default of the configuration.
	MaxTokens int
	// Complaint, when not "", says what was wrong with an earlier answer to the same
	// question: the model is asked again with it.
	Complaint string
	// Check, when not nil, says what is wrong with a well-formed answer, in words for
	// the model. Such an answer is asked for once more, then it is ClassInconsistent.
	Check func(Answer) error
	// Key is the identity of the question for the cache and for sharing one call
	// between callers; "" does neither. Two questions with the same Key must be the
	// same but for Nonce and random markers.
	Key string
	// Keep, when not nil, says whether an answer may be kept for the next question with this Key.
	Keep func(Answer) bool
	// Caller is on whose behalf the model is asked (a principal). The quality latch
	// is his alone: garbage that one caller provokes must not lock out another.
	Caller string
}

// Message is one of a Request.Dialogue.
type Message struct {
	Role string // user or assistant
	Text string
}

// Answer is what a model answered, read but not believed. Code decides what it
// comes to.
type Answer struct {
	// Approved and Confidence (0..1) are always there; the rest may be empty.
	Approved   bool        `json:"approved"`
	Confidence float64     `json:"confidence"`
	Criteria   []Criterion `json:"criteria,omitempty"`
	// NoCriteria says that the answer judges the move as a whole: it has no member criteria, as
	// the answers of the Generic DFA server's judges.
	NoCriteria bool `json:"noCriteria,omitempty"`
	// InjectionSuspected says that the data tries to instruct the judge.
	InjectionSuspected bool     `json:"injectionSuspected,omitempty"`
	Reasoning          string   `json:"reasoning,omitempty"`
	Violations         []string `json:"violations,omitempty"`
	Suggestions        []string `json:"suggestions,omitempty"`
}

// Criterion is the model's answer to one criterion.
type Criterion struct {
	ID string `json:"id"`
	// Evidence is a verbatim quote or a JSON pointer, "" when there is none.
	Evidence string `json:"evidence,omitempty"`
	// Why is the model's sentence on it, "" when it was not asked for one.
	Why string `json:"why,omitempty"`
	// Status is met, not_met or cannot_assess.
	Status string `json:"status"`
}

// The statuses of a criterion. Anything else is read as StatusCannotAssess.
const (
	StatusMet          = "met"
	StatusNotMet       = "not_met"
	StatusCannotAssess = "cannot_assess"

	// WordContradicted and WordNotShown are what a model may call StatusNotMet and
	// StatusCannotAssess: words that it does not confuse.
	WordContradicted = "contradicted"
	WordNotShown     = "not_shown"
)

// Reply is an Answer with how it came about.
type Reply struct {
	Answer Answer `json:"answer"`
	// Text is the answer to a Request.Dialogue.
	Text string `json:"text,omitempty"`
	// Lenient is true when the answer was unmistakable but not in the form asked
	// for: fenced, wrapped in prose, numbers as strings.
	Lenient bool `json:"lenient,omitempty"`
	// Model is the Name of the configured model that answered; Reported is what the
	// endpoint calls it, Fingerprint its system_fingerprint.
	Model       string `json:"model"`
	Reported    string `json:"reported,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Endpoint is the host that answered.
	Endpoint string `json:"endpoint,omitempty"`
	Rung     Rung   `json:"rung,omitempty"`
	// Usage is that of all Calls, unusable answers too; nil when one of them did not say:
	// unknown is not zero.
	Usage *Usage `json:"usage,omitempty"`
	// CostUSD is nil when usage or a price is unknown.
	CostUSD *float64 `json:"costUSD,omitempty"`
	// Calls counts the HTTP requests made for this reply, negotiation and failures
	// included; 0 for a cache hit.
	Calls int `json:"calls"`
	// Reasked is true when the first answer could not be used.
	Reasked bool `json:"reasked,omitempty"`
	// CacheHit is true when no model was asked; Shared, when another caller's call
	// was waited for.
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

// Rung is how an endpoint is made to answer in the right form, best first.
type Rung string

// The rungs of the capability ladder.
const (
	RungJSONSchema Rung = "json_schema"
	RungTool       Rung = "tool" // one tool, required
	RungJSONObject Rung = "json_object"
	RungPrompt     Rung = "prompt"
)

// ToolName is the one tool that a model can call.
const ToolName = "submit_verdict"

// Exchange is one recorded HTTP answer of an endpoint.
type Exchange struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"` // lower-case names
	Body    string            `json:"body"`
	// Nonce is the one that the request carried, "" for none.
	Nonce string `json:"nonce,omitempty"`
}
