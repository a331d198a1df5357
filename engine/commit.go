package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// change describes one commit to an instance: an event and everything written with it. Once it is written,
// it also holds the new instance. The event gets the idempotency key of the request.
type change struct {
	event    record.Event     // sealed once it is written; other events may precede it
	restored *record.Instance // the instance that a rollback restores
	lesson   *store.Lesson    // for the judge's memory
	opens    *store.Review    // the review that an escalated event opens
	resolves *store.Review    // the review that the event, or the move, resolves
	reopens  *store.Review    // the rejected review that the event reopens
	end      record.Review    // how the resolved or reopened review ends
	joins    string           // the open review that the event binds the idempotency key to
	replaces string           // the open review that the new one replaces, even if both ask for the same
	next     instance         // set once the change is written

	followUps    []record.Event // events that follow in the same commit, sealed once they are written
	otherReviews []store.Review // other reviews that are written in the same commit
	exempt       bool           // recorded even if the principal's quota is exhausted
}

// cause returns the event of a change that moves the instance, or the main event if none does.
func (c change) cause() record.Event {
	for _, ev := range c.followUps {
		if ev.Kind.Revises() {
			return ev
		}
	}
	return c.event
}

// alreadyParkedError reports that a review was opened for the same request in the meantime.
type alreadyParkedError struct{ review string }

func (e *alreadyParkedError) Error() string {
	return "review " + e.review + " is already open for the same request"
}

// errReviewClosed reports that a review has ended since it was loaded.
var errReviewClosed = errors.New("the review is no longer open")

// commit seals a change onto inst and writes it, and ends every review that the change makes stale. Another
// commit may come first. If it wrote only refusals, pre-checks, checkpoints or reviews, the judgement is
// still valid: commit seals the change again, onto the new head, without another judgement.
func (e *Engine) commit(ctx context.Context, inst instance, do change) (change, error) {
	do.event.Key = inst.key()
	for {
		c, done, err := e.prepareCommit(ctx, inst, do)
		if err != nil {
			return change{}, err
		}
		refund := func() {}
		if !do.exempt {
			if refund, err = e.ledger.chargeEvents(c.Events); err != nil {
				return change{}, err
			}
		}
		if err = e.cfg.Store.Commit(ctx, c); err == nil {
			e.Publish(ctx, c.Events...)
			if e.cfg.Observer != nil {
				e.cfg.Observer.Changed(ctx, c.Next)
			}
			return done, nil
		}
		refund()
		if !errors.Is(err, store.ErrConflict) || inst.Seq == 0 {
			return change{}, StoreError("record the decision", err)
		}
		current, lerr := e.load(ctx, inst.ID)
		if lerr != nil {
			return change{}, StoreError("load the instance", lerr)
		}
		if current.Revision != inst.Revision || current.Seq <= inst.Seq || !sameCalls(current.Facts, inst.Facts) ||
			do.event.IsStop() && !sameStops(current.Facts, inst.Facts) {
			return change{}, &conflict{inst.ID}
		}
		inst.Instance = current
	}
}

// sameCalls reports whether nothing was called, settled or granted between two loads of an instance. Only
// then is a decision still valid.
func sameCalls(a, b workflow.Facts) bool {
	return slices.Equal(a.Calls, b.Calls) && slices.Equal(a.Grants, b.Grants) && maps.Equal(a.Called, b.Called)
}

// sameStops reports whether the facts that decide a stop are the same in two loads of an instance.
func sameStops(a, b workflow.Facts) bool {
	return a.Stops.Refused == b.Stops.Refused && a.Stops.Accepted == b.Stops.Accepted && slices.Equal(a.Reviews, b.Reviews)
}

// snapshotInterval is the maximum number of events between two snapshots. It limits how many events are folded
// to show a past state.
const snapshotInterval = 64

// prepareCommit builds the commit of a change onto inst: first the events that end reviews, then its own
// events.
func (e *Engine) prepareCommit(ctx context.Context, inst instance, do change) (store.Commit, change, error) {
	ends, rows, err := e.endReviews(ctx, inst.Instance, do)
	if err != nil {
		return store.Commit{}, change{}, err
	}
	c := store.Commit{
		Expect: inst.Seq, Next: inst.Instance, Reviews: append(rows, do.otherReviews...), Lesson: do.lesson, Lease: store.LeaseOf(ctx),
	}
	do.followUps = slices.Clone(do.followUps)
	for _, ev := range append(ends, do.event) {
		if do.event, c.Next, err = e.appendEvent(ctx, c.Next, ev, do.restored); err != nil {
			return store.Commit{}, change{}, err
		}
		c.Events = append(c.Events, do.event)
	}
	for i, ev := range do.followUps {
		if do.followUps[i], c.Next, err = e.appendEvent(ctx, c.Next, ev, nil); err != nil {
			return store.Commit{}, change{}, err
		}
		c.Events = append(c.Events, do.followUps[i])
	}
	if e.endsWithSuccess(ctx, c.Next) {
		last := c.Events[len(c.Events)-1]
		ev := record.Event{Kind: record.Released, Time: last.Time, Principal: last.Principal, Role: last.Role}
		if ev, c.Next, err = e.appendEvent(ctx, c.Next, ev, nil); err != nil {
			return store.Commit{}, change{}, err
		}
		c.Events = append(c.Events, ev)
	}
	c.Snapshot = do.event.Kind == record.Checkpointed || do.event.Rollback != nil || c.Next.Seq/snapshotInterval > inst.Seq/snapshotInterval
	do.next = inst
	do.next.Instance, c.Next = c.Next, c.Next.StoredForm()
	if do.reopens != nil {
		c.Reviews = append(c.Reviews, closeRow(*do.reopens, do.end, do.event))
	}
	if do.opens != nil {
		row := *do.opens
		row.Seq, row.Revision = do.event.Seq, do.event.Revision
		do.opens = &row
		c.Reviews = append(c.Reviews, row)
	}
	return c, do, e.sealRows(ctx, inst.Instance, c.Reviews)
}

// endReviews returns the events and rows that end reviews before a change: the review that it resolves,
// the review that it supersedes, and every review that a move makes stale.
func (past history) endReviews(ctx context.Context, inst record.Instance, do change) ([]record.Event, []store.Review, error) {
	ev := do.cause()
	var events []record.Event
	var rows []store.Review
	end := func(open workflow.OpenReview, how record.Review) error {
		row, err := past.findReview(ctx, open.ID)
		if err != nil {
			if !errors.Is(err, store.ErrNotFound) {
				return StoreError("read the review", err)
			}
			row = store.Review{ID: open.ID, Instance: inst.ID, Workflow: inst.Workflow, Action: open.Action}
		}
		how.ID = open.ID
		rows = append(rows, closeRow(row, how, ev))
		events = append(events, newReviewEvent(ev, open.Action, how))
		return nil
	}
	resolved, joined := false, false
	for _, open := range inst.Facts.Reviews {
		var err error
		joined = joined || open.ID == do.joins
		switch {
		case do.resolves != nil && open.ID == do.resolves.ID:
			resolved = true
			rows = append(rows, closeRow(*do.resolves, do.end, ev))
			if ev.Kind != record.Reviewed {
				events = append(events, newReviewEvent(ev, open.Action, do.end))
			}
		case ev.Kind == record.Escalated && open.Action == ev.Action:
			if open.Digest == ev.Review.Digest && open.ID != do.replaces {
				if _, err := store.FindReview(ctx, past.store, open.ID); !errors.Is(err, store.ErrNotFound) { // a repair of the store may have lost the review
					return nil, nil, &alreadyParkedError{open.ID}
				}
			}
			err = end(open, record.Review{Status: record.ReviewSuperseded, Reason: "The same action was requested with other data."})
		case ev.Kind.Revises():
			err = end(open, record.Review{Status: record.ReviewStale, Reason: describeConflict(ev)})
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if do.resolves != nil && !resolved || do.joins != "" && !joined {
		return nil, nil, errReviewClosed
	}
	return events, rows, nil
}

// newReviewEvent returns the event that records the end of a review; cause is the event that led to it.
func newReviewEvent(cause record.Event, action string, how record.Review) record.Event {
	ev := record.Event{Kind: record.Reviewed, Time: cause.Time, Principal: cause.Principal, Role: cause.Role, Action: action, Review: &how}
	if how.By != "" {
		ev.Principal, ev.Role = how.By, string(RoleReviewer)
	}
	return ev
}

// closeRow returns the row of a review that has ended. It drops the data and the large parts of the
// evidence, which only an open review needs. If the priority was only raised, the review stays open.
func closeRow(row store.Review, how record.Review, cause record.Event) store.Review {
	if how.Status == record.ReviewOpen {
		row.Priority, row.ExpiresAt = how.Priority, time.Time{}
		return row
	}
	row.Status, row.Data, row.Evidence = how.Status, nil, trimEvidence(row.Evidence)
	row.Resolution, row.By, row.Channel, row.Reason = how.Resolution, how.By, how.Channel, how.Reason // for a reopened review: who reopened it
	row.ClosedAt = cause.Time
	return row
}

func describeConflict(ev record.Event) string {
	switch ev.Kind {
	case record.RolledBack:
		return "The instance was rolled back."
	case record.Undone:
		return fmt.Sprintf("The move %q was undone.", ev.Action)
	case record.Redone:
		return fmt.Sprintf("The move %q was made again.", ev.Action)
	case record.Migrated:
		return fmt.Sprintf("The instance was migrated to version %d.", ev.Version)
	case record.KindCancelled:
		return "The instance was cancelled."
	case record.Advanced:
		return fmt.Sprintf("The instance moved on by %q.", ev.Action)
	default:
		return fmt.Sprintf("The instance was %s.", ev.Kind)
	}
}
