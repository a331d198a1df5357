package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Watcher reads the state of instances and reviews.
type Watcher interface {
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
	Review(ctx context.Context, p engine.Principal, id string) (engine.ReviewView, error)
}

// Workflows is used by steps of the type workflow; *engine.Engine implements it.
type Workflows interface {
	Start(ctx context.Context, p engine.Principal, req engine.StartRequest) (engine.StartResult, error)
	Advance(ctx context.Context, p engine.Principal, req engine.AdvanceRequest) (engine.AdvanceResult, error)
	Watcher
}

// The actions of moves. Steps of the type workflow use start, advance and wait.
const (
	moveStart   = "start"
	moveAdvance = "advance"
	moveReview  = "review" // waits for a person's decision
)

// move performs a step of the type workflow. It uses the key of the step as idempotency key, so the move
// happens once even if it is repeated.
func (d Executor) move(ctx context.Context, c Command) Outcome {
	if d.Workflows == nil {
		return refuse(CodeNotAllowed, "this run has no store with workflows")
	}
	switch c.Action {
	case moveStart:
		return d.startInstance(ctx, c)
	case moveAdvance:
		return d.advanceInstance(ctx, c)
	case moveReview:
		review, o := d.awaitReview(ctx, &c, c.Instance)
		if o.Err == nil {
			o.Value = map[string]any{"id": review.ID, "status": string(review.Status), "decision": string(review.Decision), "by": review.By, "reason": review.Reason}
		}
		return o
	default:
		return d.awaitState(ctx, c)
	}
}

// moveKey returns the idempotency key of a move. Another attempt after a failure is the same move.
func moveKey(c Command) string {
	return idempotencyKey(c.Run, attemptPart.ReplaceAllString(c.Key, ""))
}

// encodeData encodes the data of a move; nil stays nil.
func encodeData(data any) (json.RawMessage, error) {
	if data == nil {
		return nil, nil
	}
	return document.Marshal(data)
}

func (d Executor) startInstance(ctx context.Context, c Command) Outcome {
	data, err := encodeData(c.Arguments)
	if err != nil {
		return failMove(err)
	}
	r, err := d.Workflows.Start(ctx, c.Principal, engine.StartRequest{Type: c.Name, Context: data, Key: moveKey(c)})
	switch {
	case err != nil:
		return failMove(err)
	case r.ID == "":
		return refuseMove(r.Decision)
	}
	return describePosition(r.Position)
}

// advanceInstance makes a move. If the move needs a person's approval, it waits for it.
func (d Executor) advanceInstance(ctx context.Context, c Command) Outcome {
	data, err := encodeData(c.Arguments)
	if err != nil {
		return failMove(err)
	}
	r, err := d.Workflows.Advance(ctx, c.Principal, engine.AdvanceRequest{ID: c.Instance, Action: c.Target, Data: document.ReadTrusted(data), Key: moveKey(c)})
	switch {
	case err != nil:
		return failMove(err)
	case r.Decision.Applied:
		return describePosition(r.Position)
	case r.Review == nil:
		return refuseMove(r.Decision)
	}
	switch review, o := d.awaitApproval(ctx, &c, r.Review.ID); {
	case o.Err != nil && o.Err.Code == CodeNotAllowed && review.Decision == judge.Approve: // the approval itself made the move
		o.Err.Message = fmt.Sprintf("the move %s of the instance %s was made when %s approved it, but the run stops here: %s", c.Target, c.Instance, review.By, o.Err.Message)
		return o
	case o.Err != nil:
		return o
	}
	status, err := d.Workflows.Status(ctx, c.Principal, c.Instance)
	if err != nil {
		return failMove(err)
	}
	return describePosition(status.Position)
}

// awaitState waits until an instance reaches a state.
func (d Executor) awaitState(ctx context.Context, c Command) Outcome {
	var at engine.Position
	defer attemptOf(ctx).showWait(QuestionState, func(q *RunQuestion) { q.Instance, q.State = c.Instance, c.Target })()
	o := d.await(ctx, &c, func() (bool, error) {
		status, err := d.Workflows.Status(ctx, c.Principal, c.Instance)
		at = status.Position
		return at.State == c.Target || at.Status != record.Running, err
	})
	switch {
	case o.Err != nil:
		return o
	case at.State != c.Target:
		return refuse(CodeRefused, "the instance %s will not reach the state %q: it is %s in the state %q", at.ID, c.Target, at.Status, at.State)
	}
	return describePosition(at)
}

// awaitReview waits until a review is decided, or can no longer be. It returns the review even if the
// principal has lost its rights since.
func (d Executor) awaitReview(ctx context.Context, c *Command, id string) (review engine.ReviewSummary, o Outcome) {
	defer attemptOf(ctx).showWait(QuestionReview, func(q *RunQuestion) { q.Review = id })()
	o = d.await(ctx, c, func() (bool, error) {
		view, err := d.Workflows.Review(ctx, c.Principal, id)
		review = view.ReviewSummary
		return review.Status != record.ReviewOpen, err
	})
	return review, o
}

// awaitApproval waits like awaitReview, and fails the step unless the review was approved.
func (d Executor) awaitApproval(ctx context.Context, c *Command, id string) (engine.ReviewSummary, Outcome) {
	review, o := d.awaitReview(ctx, c, id)
	switch {
	case o.Err != nil || review.Decision == judge.Approve:
	case review.Status == record.ReviewResolved:
		o = refuse(CodeRefused, "%s rejected it: %s", review.By, review.Reason)
	default:
		o = refuse(CodeRefused, "no one decided the review %s: it is %s", id, review.Status)
	}
	return review, o
}

// storePoll is the interval for polling changes in the store.
const storePoll = 200 * time.Millisecond

// await polls until look reports true. This may take days, so it then checks the current rights.
func (d Executor) await(ctx context.Context, c *Command, look func() (bool, error)) Outcome {
	tick := time.NewTicker(storePoll)
	defer tick.Stop()
	for {
		switch done, err := look(); {
		case isTemporary(err) && ctx.Err() == nil: // a later poll may succeed
		case err != nil:
			return failMove(err)
		case done:
			return d.authorize(ctx, c)
		}
		attemptOf(ctx).noteCheck()
		select {
		case <-tick.C:
			continue
		case <-attemptOf(ctx).stop:
		case <-ctx.Done():
		}
		return Outcome{Err: &StepError{Code: CodeTimeout, Message: "the wait was ended early"}}
	}
}

// failMove returns the outcome of a step if the engine could not decide.
func failMove(err error) Outcome {
	known, ok := errors.AsType[*engine.Error](err)
	if !ok {
		return Outcome{Err: &StepError{Code: string(engine.CodeInternal), Message: err.Error()}}
	}
	retryable := slices.ContainsFunc(engine.Codes, func(info engine.CodeInfo) bool { return info.Code == known.Code && info.Retryable })
	return Outcome{Err: &StepError{Code: string(known.Code), Message: strings.TrimSpace(known.Message + " " + known.Hint), Final: !retryable}}
}

// refuseMove returns the outcome of a step whose move was judged and rejected.
func refuseMove(decision engine.Decision) Outcome {
	why := decision.Violations
	if len(why) == 0 {
		why = []string{decision.Reasoning}
	}
	return refuse(CodeRefused, "refused by %s: %s", decision.DecidedBy, strings.Join(append(why, decision.Suggestions...), " "))
}

// describePosition returns the output of a step that moved an instance or waited for one.
func describePosition(p engine.Position) Outcome {
	return Outcome{Value: map[string]any{
		"id": p.ID, "workflow": p.Workflow, "state": p.State, "status": string(p.Status), "complete": p.Complete,
		"outcome": p.Outcome, "revision": json.Number(fmt.Sprint(p.Revision)),
	}}
}
