package llm

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Class says what kind of failure it was. Everything that follows from a failure
// follows from its class.
type Class string

// The classes. Their traits stand in one table, see Traits.
const (
	ClassTimeout     Class = "timeout"      // no answer in time: ours, or 408, 504, 524
	ClassNetwork     Class = "network"      // no connection, reset, DNS, TLS
	ClassUpstream    Class = "upstream"     // 5xx, or 200 with something that is no completion
	ClassOverloaded  Class = "overloaded"   // 503, 529: busy or still loading
	ClassNoChoices   Class = "no_choices"   // a completion without a choice
	ClassRateLimited Class = "rate_limited" // 429 that waiting cures
	ClassQuota       Class = "quota"        // 402, 429 that waiting does not cure
	ClassAuth        Class = "auth"         // 401, 403, a bad key
	ClassNotFound    Class = "not_found"    // wrong path or unknown model
	ClassConfig      Class = "misconfigured"
	ClassCapability  Class = "capability" // a parameter or rung that the endpoint does not take

	ClassTooLong      Class = "context_too_long"
	ClassFilter       Class = "content_filter"
	ClassRefusal      Class = "refusal"
	ClassMalformed    Class = "malformed_verdict"
	ClassEmpty        Class = "empty"
	ClassTruncated    Class = "truncated"
	ClassAmbiguous    Class = "ambiguous_verdict"
	ClassInconsistent Class = "inconsistent_verdict"

	ClassBreakerOpen Class = "breaker_open" // not asked: the endpoint has failed too often
	ClassNotBefore   Class = "not_before"   // not asked: the endpoint said when to come back
	ClassBusy        Class = "busy"         // not asked: the calls of others and of this caller left no place in time
	ClassShareSpent  Class = "share_spent"  // not asked: this caller has asked as much as it may in a minute
	ClassQuality     Class = "quality"      // not asked: its answers to this caller were mostly unusable
)

// Traits is what follows from a Class (research: the consensus of resilience4j,
// LiteLLM, openai-go and Envoy; see docs/decisions).
type Traits struct {
	// Retry: the same model may be asked again after a wait.
	Retry bool
	// Reask: the model may be asked once more, told what was wrong.
	Reask bool
	// Chain: another model may be asked.
	Chain bool
	// Failure counts for the circuit breaker as a failure; Success as a success (the
	// service is up); neither is not counted at all.
	Failure, Success bool
	// Poor counts for the quality latch.
	Poor bool
	// FromCase: the case, or whoever sent it, can bring this about, so nothing may be
	// let pass because of it.
	FromCase bool
	// Busy: it says nothing of the case and is no outage either, because whoever asks
	// often or slowly enough brings it about. Nothing is decided; trying again can help.
	Busy bool
}

// Error is a failure to get an answer.
type Error struct {
	Class Class
	// Status is the HTTP status, 0 without one.
	Status int
	// Message says what happened in one sentence for an operator. It contains no
	// key, no prompt, no answer, and no control characters.
	Message string
	// Advice says what to do about it, "" when nothing but what its class always needs.
	Advice string
	// RetryAfter is when trying again can help; 0 when unknown.
	RetryAfter time.Duration
	// Limit is the class that a ClassNotBefore follows from.
	Limit Class
	// CallerPart says that this caller took part in what an endpoint answers to too many
	// requests, so that it is no outage.
	CallerPart bool
	// Param is the parameter that a ClassCapability is about: response_format, tools,
	// temperature, seed, …
	Param string
	// Model is the Name of the model asked last, Endpoint its host, Breaker the state
	// of its breaker, Calls the HTTP requests made in all.
	Model, Endpoint, Breaker string
	Calls                    int
	// Usage and CostUSD of the answers that could not be used, nil when unknown.
	Usage   *Usage
	CostUSD *float64
	// Err is the cause, if there is one to unwrap.
	Err error

	// otherwise is what a ClassCapability is that only its words say, when no other form helps.
	otherwise Class
	whole     bool // of a ClassTimeout: the request had all the time that one gets
}

// Error says what happened, with the class.
func (e *Error) Error() string {
	switch {
	case e.Message == "":
		return string(e.Class)
	case e.Status != 0:
		return fmt.Sprintf("%s (HTTP %d): %s", e.Class, e.Status, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Class, e.Message)
}

// Explain says in one line what happened and what an operator can do about it.
func (e *Error) Explain() string {
	if advice := e.advice(); advice != "" {
		return e.Message + "; " + advice
	}
	return e.Message
}

func (e *Error) advice() string { return cmp.Or(e.Advice, usualAdvice[e.Class]) }

// usualAdvice is what to do about a failure whose Error says nothing better.
var usualAdvice = map[Class]string{
	ClassTimeout:     "use a faster model, let it think less, or allow more time (--llm-deadline)",
	ClassNetwork:     "check that the endpoint runs and can be reached from here",
	ClassUpstream:    "look into the endpoint's log: it fails by itself",
	ClassNoChoices:   "look into the endpoint's log: it fails by itself",
	ClassOverloaded:  "wait: the model is loading or overloaded",
	ClassRateLimited: "wait, and lower --llm-rate and --llm-parallel if it happens again",
	ClassQuota:       "the account has no credit or quota left; no retry helps, see the provider's billing page",
	ClassAuth:        "check LLM_API_KEY: the endpoint does not take the key, or the key may not use this model",
	ClassNotFound:    "check the path of LLM_BASE_URL: most servers want it to end in /v1",
	ClassConfig:      "check LLM_BASE_URL: the endpoint sends callers elsewhere",

	ClassTooLong:      "send shorter data, or use a model with a longer context",
	ClassFilter:       "loosen the endpoint's content filter, or use another endpoint",
	ClassRefusal:      "use another model, or look into the endpoint's log for the reason",
	ClassMalformed:    "use a larger model, or another form of its answers (--llm-structured)",
	ClassEmpty:        "use another model, or another form of its answers (--llm-structured)",
	ClassTruncated:    "let the model think less (LLM_JUDGE_THINKING_MODE=off), or say how much it thinks (low): then its answers may be 8 times as long; if it repeats itself, use a larger model",
	ClassAmbiguous:    "use a larger model: this one answers more than it is asked",
	ClassInconsistent: "use a larger model: this one does not say what it means",
}

// IsBusy reports whether nothing can be decided now, and trying again later can help: the
// caller's requests, its own or those of others may have brought the failure about.
func (e *Error) IsBusy() bool { return e.CallerPart || e.Class.Traits().Busy }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// withChange returns a changed copy.
func (e *Error) withChange(change func(*Error)) *Error {
	changed := *e
	change(&changed)
	return &changed
}

// Is reports whether target is an *Error of the same Class, so that
// errors.Is(err, &Error{Class: ClassQuota}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error) //nolint:errorlint // Is compares with the target itself
	return ok && t.Class == e.Class && t.Message == "" && t.Status == 0
}

// ClassOf returns the class of a failure, "" when err is none of this package's.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ""
}

// Traits returns what follows from the class. One that is not known has the most
// careful ones: nothing is retried, and the case may be to blame.
func (c Class) Traits() Traits {
	if t, ok := traits[c]; ok {
		return t
	}
	return Traits{FromCase: true}
}

// The kinds of failure. What a class is not listed for does not apply to it.
var (
	// outageTraits: the endpoint does not do its work.
	outageTraits = Traits{Retry: true, Chain: true, Failure: true}
	// blockedTraits: it will not, until somebody changes something.
	blockedTraits = Traits{Chain: true}
	// unusableTraits: it answered, and that was no judgement.
	unusableTraits = Traits{Reask: true, Success: true, Poor: true, FromCase: true}
	// declinedTraits: it answered that it will not judge this.
	declinedTraits = Traits{Success: true, FromCase: true}
)

var traits = map[Class]Traits{
	// What takes long may do so because of the case; see lateness.
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

	ClassBreakerOpen: blockedTraits,
	ClassNotBefore:   blockedTraits,
	// Whoever asks often enough fills the places, and whoever sends enough garbage
	// closes the quality latch: neither may open the gate, or have another model asked.
	ClassBusy:       {Busy: true},
	ClassShareSpent: {Busy: true},
	ClassQuality:    {FromCase: true},
}
