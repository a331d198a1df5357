package judge

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// recordReply notes how a reply came about.
func (a *Asked) recordReply(q question, r llm.Reply) {
	a.Model = cmp.Or(r.Model, a.Model)
	a.Reported, a.Fingerprint = q.clean(r.Reported, maxLabel), q.clean(r.Fingerprint, maxLabel)
	a.Endpoint, a.Rung = q.clean(r.Endpoint, maxLabel), string(r.Rung)
	a.Lenient, a.Reasked, a.CacheHit, a.Shared = r.Lenient, r.Reasked, r.CacheHit, r.Shared
	a.Calls, a.Breaker, a.CostUSD = max(r.Calls, 0), r.Breaker, r.CostUSD
	a.Stated = clampUnit(r.Answer.Confidence)
	a.recordUsage(r.Usage)
}

func (a *Asked) recordUsage(u *llm.Usage) {
	if u != nil {
		a.PromptTokens, a.CompletionTokens, a.CachedTokens = &u.Prompt, &u.Completion, &u.Cached
	}
}

// busyFor is when to come back to a model that has too much to do, at the earliest.
const busyFor = time.Second

// BusyError says that nothing can be decided now, whatever the case is. It matches
// ErrBusy.
type BusyError struct {
	// Message is a sentence for whoever asked.
	Message string
	// RetryAfter is when trying again can help, at the earliest.
	RetryAfter time.Duration
	// Err is what happened, for the operator; nil when Message says it all.
	Err error
}

func (e *BusyError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("judge: %s (%v)", e.Message, e.Err)
	}
	return "judge: " + e.Message
}

// Is makes a BusyError match ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// Unwrap returns what happened.
func (e *BusyError) Unwrap() error { return e.Err }

// busyWith is the *BusyError that a failure of a model comes to, nil when it is of
// another kind.
func busyWith(err error) error {
	var e *llm.Error
	if !errors.As(err, &e) || !e.IsBusy() {
		return nil
	}
	return &BusyError{Message: busyMessage(e), RetryAfter: max(e.RetryAfter, busyFor), Err: err}
}

// failureOpinion is the opinion of a model layer whose model gave no answer. Whatever is
// not known to be the outside's fault may be the case's.
func failureOpinion(model Asked, q question, err error) Opinion {
	var e *llm.Error
	if !errors.As(err, &e) || e.Class == "" {
		model.Failure, model.Detail = string(llm.ClassMalformed), "the Completer failed with an error that is not its own kind"
		return noJudgement(TroubleUnreadable, "", model)
	}
	model.Model = cmp.Or(e.Model, model.Model)
	model.Endpoint, model.Breaker = q.clean(e.Endpoint, maxLabel), e.Breaker
	model.Calls, model.Failure = max(e.Calls, 0), string(e.Class)
	model.Detail = q.clean(joinSentences(e.Message, e.Advice), maxDetail)
	model.recordUsage(e.Usage)
	trouble := TroubleUnavailable
	switch {
	case e.Class.Traits().FromCase:
		trouble = TroubleUnreadable
	case e.Class == llm.ClassConfig:
		trouble = TroubleNotConfigured
	}
	op := noJudgement(trouble, failureMessage(trouble, e.Class), model)
	op.RetryAfter = max(e.RetryAfter, 0)
	return op
}
