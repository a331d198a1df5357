package engine

import (
	"context"
	"errors"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
)

// joinReview answers a request with the review that is already open for exactly this request, and with the
// decision that opened it. An idempotency key is bound to the review by a separate event: otherwise a
// retry after the review has ended would count as a new request.
func (e *Engine) joinReview(ctx context.Context, inst instance, row store.Review) (AdvanceResult, error) {
	asked, err := e.loadOpeningEvent(ctx, inst.ID, row.Seq)
	if err != nil {
		return AdvanceResult{}, err
	}
	if inst.key() != nil {
		if err := e.checkEventQuota(ctx, inst); err != nil {
			return AdvanceResult{}, err
		}
		ev := e.reviewEvent(inst.by, row, record.Review{ID: row.ID, Status: record.ReviewOpen, Priority: row.Priority, ExpiresAt: row.ExpiresAt})
		w, err := e.commit(ctx, inst, change{event: ev, joins: row.ID})
		if errors.Is(err, errReviewClosed) {
			err = &conflict{inst.ID} // nothing is bound: a repeated request is judged again
		}
		if err != nil {
			return AdvanceResult{}, err
		}
		inst = w.next
	}
	return AdvanceResult{
		Position: inst.position(), From: asked.From, Action: asked.Action,
		Decision: decisionView(asked.Decision), Review: e.summarizeReview(row),
	}, nil
}

// joinExistingReview answers a request that was overtaken by another one with the same question.
func (e *Engine) joinExistingReview(ctx context.Context, inst instance, review string) (AdvanceResult, error) {
	if err := e.reload(ctx, &inst); err != nil {
		return AdvanceResult{}, err
	}
	row, err := e.findReview(ctx, review)
	if err != nil {
		return AdvanceResult{}, StoreError("read the review", err)
	}
	return e.joinReview(ctx, inst, row)
}

// replayParked answers a key that is bound to a parked move. It returns the decision that followed a
// person's resolution, else the one that parked the move, and the present state of the review. ev opened
// or joined the review.
func (e *Engine) replayParked(ctx context.Context, now instance, ev record.Event) (AdvanceResult, error) {
	row, err := e.findReview(ctx, ev.Review.ID)
	if err != nil {
		return AdvanceResult{}, StoreError("read the review", err)
	}
	asked := ev
	if ev.Kind != record.Escalated {
		if asked, err = e.loadOpeningEvent(ctx, ev.Instance, row.Seq); err != nil {
			return AdvanceResult{}, err
		}
	}
	last := ev
	if row.Status != record.ReviewOpen {
		if last, err = e.findClosingEvent(ctx, ev); err != nil {
			return AdvanceResult{}, err
		}
	}
	review, err := e.newView(now.by).renderReview(ctx, row)
	if err != nil {
		return AdvanceResult{}, err
	}
	then, err := e.instanceAfter(ctx, now, last)
	if err != nil {
		return AdvanceResult{}, err
	}
	d := asked.Decision
	if last.Decision != nil && last.Review.Status == record.ReviewResolved {
		d = last.Decision
	}
	return AdvanceResult{
		Position: then.position(), From: asked.From, Action: asked.Action, Decision: decisionView(d), Review: &review, Replayed: true,
	}, nil
}

// findClosingEvent returns the event that ended a review, or the move that its approval made. It returns
// ev itself if the history has neither.
func (past history) findClosingEvent(ctx context.Context, ev record.Event) (record.Event, error) {
	last := ev
	q := store.EventQuery{Instance: ev.Instance, AfterSeq: ev.Seq, Kinds: []record.Kind{record.Reviewed, record.Advanced}}
	for next, err := range past.store.Events(ctx, q) {
		if err != nil {
			return record.Event{}, StoreError("read the history", err)
		}
		if next.Review == nil || next.Review.ID != ev.Review.ID || next.Review.Status == record.ReviewOpen {
			continue
		}
		last = next
		if next.Kind == record.Advanced || next.Review.Resolution != judge.Approve { // an approval's move follows it
			break
		}
	}
	return last, nil
}
