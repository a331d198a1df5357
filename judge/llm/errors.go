package llm

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Class is the kind of a failure. All handling of failures depends on it.
type Class string

// The classes. See Traits for their handling.
const (
	ClassTimeout     Class = "timeout"      // no answer in time: our own limit, or 408, 504, 524
	ClassNetwork     Class = "network"      // no connection, reset, DNS, TLS
	ClassUpstream    Class = "upstream"     // 5xx, or 200 with a body that is not a completion
	ClassOverloaded  Class = "overloaded"   // 503, 529: busy or still loading
	ClassNoChoices   Class = "no_choices"   // a completion without a choice
	ClassRateLimited Class = "rate_limited" // 429 that passes after a wait
	ClassQuota       Class = "quota"        // 402, or 429 that does not pass after a wait
	ClassAuth        Class = "auth"         // 401, 403, a bad key
	ClassNotFound    Class = "not_found"    // wrong path or unknown model
	ClassConfig      Class = "misconfigured"
	ClassCapability  Class = "capability" // a parameter or rung that the endpoint does not support

	ClassTooLong      Class = "context_too_long"
	ClassFilter       Class = "content_filter"
	ClassRefusal      Class = "refusal"
	ClassMalformed    Class = "malformed_verdict"
	ClassEmpty        Class = "empty"
	ClassTruncated    Class = "truncated"
	ClassAmbiguous    Class = "ambiguous_verdict"
	ClassInconsistent Class = "inconsistent_verdict"
	ClassIncomplete   Class = "incomplete_verdict" // a criterion was left out, or answered in another form

	ClassBreakerOpen Class = "breaker_open" // not asked: the endpoint has failed too many times
	ClassNotBefore   Class = "not_before"   // not asked: the endpoint asked for a pause
	ClassBusy        Class = "busy"         // not asked: other calls, or this caller's own, left no free place in time
	ClassShareSpent  Class = "share_spent"  // not asked: this caller has reached its limit per minute
	ClassQuality     Class = "quality"      // not asked: most answers to this caller were unusable
)

// Traits describes how a Class is handled. The handling follows the consensus of resilience4j, LiteLLM,
// openai-go and Envoy (see docs/decisions).
type Traits struct {
	// Retry: the same model may be asked again after a wait.
	Retry bool
	// Reask: the model may be asked once more, with a complaint about its answer.
	Reask bool
	// Chain: another model may be asked.
	Chain bool
	// Failure counts as a failure for the circuit breaker, and Success as a success (the service is up). If
	// neither is set, the result is not counted.
	Failure, Success bool
	// Poor: the failure counts for the quality latch.
	Poor bool
	// FromCase: the case or the caller may have caused the failure, so it must never allow a move.
	FromCase bool
	// Busy: the failure implies nothing about the case and is not an outage either, because callers can cause
	// it with many or slow questions. Nothing is decided; a retry may help.
	Busy bool
}

// ErrIncomplete marks the error of a Request.Check that found a criterion without an answer in the right form.
var ErrIncomplete = errors.New("incomplete")

// Error is a failure to get an answer.
type Error struct {
	Class Class
	// Status is the HTTP status, or 0.
	Status int
	// Message describes the failure in one sentence for an operator. It contains no key, prompt, answer or
	// control character.
	Message string
	// Advice is the remedy. It is "" if the usual advice for the class applies.
	Advice string
	// RetryAfter is the delay after which a retry may help; 0 if unknown.
	RetryAfter time.Duration
	// Limit is the class of the failure that caused a ClassNotBefore.
	Limit Class
	// CallerPart is true if this caller contributed to a limit that the endpoint reported. The failure is then
	// not an outage.
	CallerPart bool
	// Param is the parameter that a ClassCapability is about: response_format, tools, temperature, seed, …
	Param string
	// Model is the Name of the last model asked, Endpoint its host, Breaker the state of its breaker. Calls is
	// the total number of HTTP requests.
	Model, Endpoint, Breaker string
	Calls                    int
	// Usage and CostUSD are those of the unusable answers; nil if unknown.
	Usage   *Usage
	CostUSD *float64
	// Err is the cause, or nil.
	Err error

	// otherwise is the class to use if no other form works. It is set if only the text of the failure
	// suggests ClassCapability.
	otherwise Class
	whole     bool // for ClassTimeout: the request had its full time
}

// Error returns the class and the message.
func (e *Error) Error() string {
	switch {
	case e.Message == "":
		return string(e.Class)
	case e.Status != 0:
		return fmt.Sprintf("%s (HTTP %d): %s", e.Class, e.Status, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Class, e.Message)
}

// Explain returns the message and the advice on one line.
func (e *Error) Explain() string {
	if advice := e.advice(); advice != "" {
		return e.Message + "; " + advice
	}
	return e.Message
}

func (e *Error) advice() string { return cmp.Or(e.Advice, defaultAdvice[e.Class]) }

// defaultAdvice is the advice for Errors without their own.
var defaultAdvice = map[Class]string{
	ClassTimeout:     "use a faster model, let it think less, or allow more time (--llm-deadline)",
	ClassNetwork:     "check that the endpoint runs and can be reached from here",
	ClassUpstream:    "look into the endpoint's log: the fault is there",
	ClassNoChoices:   "look into the endpoint's log: the fault is there",
	ClassOverloaded:  "wait: the model is loading or overloaded",
	ClassRateLimited: "wait, and lower --llm-rate and --llm-parallel if it happens again",
	ClassQuota:       "the account has no credit or quota left; no retry helps, see the provider's billing page",
	ClassAuth:        "check LLM_API_KEY: the endpoint rejects the key, or the key may not use this model",
	ClassNotFound:    "check the path of LLM_BASE_URL: most servers want it to end in /v1",
	ClassConfig:      "check LLM_BASE_URL: the endpoint redirects",

	ClassTooLong:      "send shorter data, or use a model with a longer context",
	ClassFilter:       "loosen the endpoint's content filter, or use another endpoint",
	ClassRefusal:      "use another model, or look into the endpoint's log for the reason",
	ClassMalformed:    "use a larger model, or another form of its answers (--llm-structured)",
	ClassEmpty:        "use another model, or another form of its answers (--llm-structured)",
	ClassTruncated:    "let the model think less (LLM_JUDGE_THINKING_MODE=off), or set how much it thinks (low), which allows answers 8 times as long; if it repeats itself, use a larger model",
	ClassAmbiguous:    "use a larger model: this one answers more than it is asked",
	ClassInconsistent: "use a larger model: this one's answers are unclear",
	ClassIncomplete:   "use another form of its answers (--llm-structured), or a larger model",
}

// IsBusy reports whether nothing can be decided now but a later retry may help: requests of this caller or of
// others may have caused the failure.
func (e *Error) IsBusy() bool { return e.CallerPart || e.Class.Traits().Busy }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// withChange returns a changed copy.
func (e *Error) withChange(change func(*Error)) *Error {
	changed := *e
	change(&changed)
	return &changed
}

// Is reports whether target is an *Error of the same Class, so that errors.Is(err, &Error{Class: ClassQuota})
// works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error) //nolint:errorlint // Is compares with the target itself
	return ok && t.Class == e.Class && t.Message == "" && t.Status == 0
}

// ClassOf returns the class of an error, or "" if it is not an *Error.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ""
}

// Traits returns the traits of the class. An unknown class has the most cautious ones: no retry, and the
// case may be the cause.
func (c Class) Traits() Traits {
	if t, ok := traits[c]; ok {
		return t
	}
	return Traits{FromCase: true}
}

// Traits that several classes share.
var (
	// outageTraits: the endpoint is not working.
	outageTraits = Traits{Retry: true, Chain: true, Failure: true}
	// blockedTraits: the endpoint will not answer until a person changes something.
	blockedTraits = Traits{Chain: true}
	// unusableTraits: the endpoint answered, but not with a judgement.
	unusableTraits = Traits{Reask: true, Success: true, Poor: true, FromCase: true}
	// declinedTraits: the endpoint declined to judge this case.
	declinedTraits = Traits{Success: true, FromCase: true}
)

var traits = map[Class]Traits{
	// The case may be the reason for the delay; see lateness.
	ClassTimeout:    {Retry: true, Chain: true, Busy: true},
	ClassNetwork:    outageTraits,
	ClassUpstream:   outageTraits,
	ClassOverloaded: {Retry: true, Chain: true},
	ClassNoChoices:  outageTraits,

	ClassRateLimited: {Retry: true, Chain: true},
	ClassQuota:       blockedTraits,
	ClassAuth:        blockedTraits,
	ClassNotFound:    blockedTraits,
	ClassConfig:      blockedTraits,
	ClassCapability:  blockedTraits,

	ClassTooLong:      {FromCase: true},
	ClassFilter:       declinedTraits,
	ClassRefusal:      declinedTraits,
	ClassMalformed:    unusableTraits,
	ClassEmpty:        unusableTraits,
	ClassTruncated:    unusableTraits,
	ClassAmbiguous:    unusableTraits,
	ClassInconsistent: unusableTraits,
	ClassIncomplete:   unusableTraits,

	ClassBreakerOpen: blockedTraits,
	ClassNotBefore:   blockedTraits,
	// Callers can fill all places with many questions, and can close the quality latch with bad data. Neither
	// may allow a move or cause another model to be asked.
	ClassBusy:       {Busy: true},
	ClassShareSpent: {Busy: true},
	ClassQuality:    {FromCase: true},
}
