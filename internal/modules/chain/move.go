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

// Mover starts and moves instances.
type Mover interface {
	Start(ctx context.Context, p engine.Principal, req engine.StartRequest) (engine.StartResult, error)
	Advance(ctx context.Context, p engine.Principal, req engine.AdvanceRequest) (engine.AdvanceResult, error)
}

// Watcher tells where instances and reviews stand.
type Watcher interface {
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
	Review(ctx context.Context, p engine.Principal, id string) (engine.ReviewView, error)
}

// Workflows are what steps of the type workflow deal with: an *engine.Engine.
type Workflows interface {
	Mover
	Watcher
}

// The actions of moves. Those of a step of the type workflow are start, advance and wait.
const (
	moveStart   = "start"
	moveAdvance = "advance"
	moveReview  = "review" // waits for a person's decision
)

// move does what a step of the type workflow asks for, under the key of the step: however often it
// is asked, it is done once.
func (d Door) move(ctx context.Context, c Command) Outcome {
	if d.Workflows == nil {
		return refuse(CodeNotAllowed, "this run has no store whose workflows it could move")
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

// moveKey is the idempotency key of a move. An attempt after one that failed is the same move.
func moveKey(c Command) string {
	return idempotencyKey(c.Run, attemptPart.ReplaceAllString(c.Key, ""))
}

// encodeData encodes the data of a move, nil for none.
func encodeData(data any) (json.RawMessage, error) {
	if data == nil {
		return nil, nil
	}
	return document.Marshal(data)
}

func (d Door) startInstance(ctx context.Context, c Command) Outcome {
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

// advanceInstance makes a move. One that waits for a person is waited for.
func (d Door) advanceInstance(ctx context.Context, c Command) Outcome {
	data, err := encodeData(c.Arguments)
	if err != nil {
		return failMove(err)
	}
	r, err := d.Workflows.Advance(ctx, c.Principal, engine.AdvanceRequest{ID: c.Instance, Action: c.Target, Data: document.Known(data), Key: moveKey(c)})
	switch {
	case err != nil:
		return failMove(err)
	case r.Decision.Applied:
		return describePosition(r.Position)
	case r.Review == nil:
		return refuseMove(r.Decision)
	}
	switch review, o := d.awaitApproval(ctx, &c, r.Review.ID); {
	case o.Err != nil && o.Err.Code == CodeNotAllowed && review.Decision == judge.Approve: // the approval made the move
		o.Err.Message = fmt.Sprintf("the move %s of the instance %s was made when %s approved it, and the run stops here: %s", c.Target, c.Instance, review.By, o.Err.Message)
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

// awaitState waits until an instance is in a state.
func (d Door) awaitState(ctx context.Context, c Command) Outcome {
	var at engine.Position
	defer showWait(ctx, QuestionState, func(q *RunQuestion) { q.Instance, q.State = c.Instance, c.Target })()
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

// awaitReview waits until a person has decided a review, or nobody can any more. It returns the review also where the
// rights are gone since.
func (d Door) awaitReview(ctx context.Context, c *Command, id string) (review engine.ReviewSummary, o Outcome) {
	defer showWait(ctx, QuestionReview, func(q *RunQuestion) { q.Review = id })()
	o = d.await(ctx, c, func() (bool, error) {
		view, err := d.Workflows.Review(ctx, c.Principal, id)
		review = view.ReviewSummary
		return review.Status != record.ReviewOpen, err
	})
	return review, o
}

// awaitApproval is awaitReview for one without whose approval the step has failed.
func (d Door) awaitApproval(ctx context.Context, c *Command, id string) (engine.ReviewSummary, Outcome) {
	review, o := d.awaitReview(ctx, c, id)
	switch {
	case o.Err != nil || review.Decision == judge.Approve:
	case review.Status == record.ReviewResolved:
		o = refuse(CodeRefused, "%s rejected it: %s", review.By, review.Reason)
	default:
		o = refuse(CodeRefused, "nobody decided it: the review %s is %s", id, review.Status)
	}
	return review, o
}

// lookInterval is how often is looked for what others change in the store.
const lookInterval = 200 * time.Millisecond

// await looks again and again until what is waited for is there. That may take days, so the rights are those of then.
func (d Door) await(ctx context.Context, c *Command, look func() (bool, error)) Outcome {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		switch done, err := look(); {
		case isPassing(err) && ctx.Err() == nil: // a look later may succeed
		case err != nil:
			return failMove(err)
		case done:
			return d.authorize(ctx, c)
		}
		noteLook(ctx)
		select {
		case <-tick.C:
			continue
		case <-stopOf(ctx):
		case <-ctx.Done():
		}
		return Outcome{Err: &StepError{Code: CodeTimeout, Message: "it was not waited for any longer"}}
	}
}

// failMove is what a step gets where the engine could not decide.
func failMove(err error) Outcome {
	known, ok := errors.AsType[*engine.Error](err)
	if !ok {
		return Outcome{Err: &StepError{Code: string(engine.CodeInternal), Message: err.Error()}}
	}
	retryable := slices.ContainsFunc(engine.Codes, func(info engine.CodeInfo) bool { return info.Code == known.Code && info.Retryable })
	return Outcome{Err: &StepError{Code: string(known.Code), Message: strings.TrimSpace(known.Message + " " + known.Hint), Final: !retryable}}
}

// refuseMove is what a step gets whose move was judged and refused.
func refuseMove(decision engine.Decision) Outcome {
	why := decision.Violations
	if len(why) == 0 {
		why = []string{decision.Reasoning}
	}
	return refuse(CodeRefused, "refused by %s: %s", decision.DecidedBy, strings.Join(append(why, decision.Suggestions...), " "))
}

// describePosition is the output of a step that moved an instance, or waited for it.
func describePosition(p engine.Position) Outcome {
	return Outcome{Value: map[string]any{
		"id": p.ID, "workflow": p.Workflow, "state": p.State, "status": string(p.Status), "complete": p.Complete,
		"outcome": p.Outcome, "revision": json.Number(fmt.Sprint(p.Revision)),
	}}
}
