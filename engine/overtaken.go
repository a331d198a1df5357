package engine

import (
	"context"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// The most tries of a request that others overtake, and how many of them may ask a model.
// Another one always got through then, so that it takes many callers to use them up.
const (
	mostTries      = 50
	mostModelTries = 4
)

// race is how a request fares that others may overtake.
type race struct {
	instance string
	expected *int64 // a revision: then it is not tried again
	lost     int    // tries that were overtaken
	asked    int    // tries for which a model was asked
	over     bool   // another try cannot succeed
	unjudged bool   // nothing is judged: it waits for no turn
}

func newRace(req AdvanceRequest) race {
	return race{instance: req.ID, expected: req.ExpectedRevision}
}

// retryOvertaken tries a request that names no revision again when the instance moved
// between the look and the write: the caller asked for the action in whatever state it
// finds. A try that was overtaken is recorded and counted nowhere but in the caller's
// quotas.
//
// Those tries of one caller at one instance take turns, and its later requests wait
// behind them, so that they do not overtake each other again and a model is not asked
// about states that are past. Callers do not wait for each other.
func retryOvertaken[T any](ctx context.Context, e *Engine, p Principal, r race, do func(*race) (T, error)) (T, error) {
	var zero T
	scope := p.ID + "\x00" + r.instance
	if r.expected != nil || r.unjudged || !e.overtaken.hasTurn(scope) {
		out, err := do(&r)
		if !errors.Is(err, store.ErrConflict) {
			return out, err
		}
		if !r.countLost() {
			return zero, e.conflictFor(ctx, p, err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, longestTurn)
	defer cancel()
	if !r.unjudged {
		release, _ := e.overtaken.acquire(bounded.Done(), scope)
		if release == nil {
			return zero, turnError(ctx, "the same instance")
		}
		defer release()
	}
	for {
		out, err := do(&r)
		if !errors.Is(err, store.ErrConflict) {
			return out, err
		}
		if !r.countLost() || bounded.Err() != nil {
			return zero, e.conflictFor(ctx, p, err)
		}
	}
}

// countLost counts a try that was overtaken, and reports whether another one makes sense.
func (r *race) countLost() (retry bool) {
	r.lost++
	return r.expected == nil && !r.over && r.lost < mostTries && r.asked < mostModelTries
}

// turnError is the answer to a request that did not get its turn in time, or whose caller left.
func turnError(ctx context.Context, about string) error {
	if ctx.Err() != nil {
		return judgeError(ctx.Err())
	}
	return &Error{
		Code: CodeBusy, RetryAfter: time.Second, Message: "Earlier requests of yours about " + about + " are still being judged.",
		Hint: "Try again when they are answered; nothing was recorded.",
	}
}
