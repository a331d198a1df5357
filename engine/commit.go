package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// extras are what some events have beside them.
type extras struct {
	restored *record.Instance // what a rollback restores
	lesson   *store.Lesson    // what a judgement taught
	opens    *store.Review    // the review that an escalated event opens
	resolves *resolution      // the review that the event, or the move, resolves
	joins    string           // the open review that the event binds a key to
}

// resolution is how a review ends by the event that is committed, or right before it.
type resolution struct {
	row store.Review
	end record.Review
}

// written is what came of a commit.
type written struct {
	event  record.Event // the one that was asked for; others may stand before it
	next   record.Instance
	opened *store.Review // as stored
}

// alreadyParkedError says that the same question was parked meanwhile.
type alreadyParkedError struct{ review string }

func (p *alreadyParkedError) Error() string {
	return "review " + p.review + " waits for the same already"
}

// reviewClosedError says that a review has ended since it was looked at.
type reviewClosedError struct{ review string }

func (c *reviewClosedError) Error() string { return "review " + c.review + " is not open any more" }

// commit seals ev onto inst and writes it, with the end of every review that it
// overtakes. When only refusals, pre-checks, checkpoints or reviews came between, the
// judgement still holds: it is sealed anew onto the present head, without judging
// again.
func (e *Engine) commit(ctx context.Context, inst record.Instance, ev record.Event, with extras) (written, error) {
	for {
		c, w, err := e.prepare(ctx, inst, ev, with)
		if err != nil {
			return written{}, err
		}
		refund, err := e.ledger.charge(c.Events)
		if err != nil {
			return written{}, err
		}
		if err = e.cfg.Store.Commit(ctx, c); err == nil {
			e.observe(ctx, c.Events...)
			if o, ok := e.cfg.Observer.(InstanceObserver); ok {
				o.Changed(ctx, c.Next)
			}
			return w, nil
		}
		refund()
		if !errors.Is(err, store.ErrConflict) || inst.Seq == 0 {
			return written{}, storeError("record the decision", err)
		}
		current, lerr := e.cfg.Store.Load(ctx, inst.ID)
		if lerr != nil {
			return written{}, storeError("load the instance", lerr)
		}
		if current.Revision != inst.Revision || current.Seq <= inst.Seq {
			return written{}, &conflict{inst.ID}
		}
		inst = current
	}
}

// prepare makes the commit of ev onto inst: first what ends reviews, then ev.
func (e *Engine) prepare(ctx context.Context, inst record.Instance, ev record.Event, with extras) (store.Commit, written, error) {
	c := store.Commit{
		Expect:   inst.Seq,
		Snapshot: ev.Kind == record.Checkpointed || ev.Rollback != nil,
		Lesson:   with.lesson,
	}
	ends, rows, err := e.endReviews(ctx, inst, ev, with)
	if err != nil {
		return store.Commit{}, written{}, err
	}
	c.Reviews = rows
	at := inst
	for _, one := range append(ends, ev) {
		sealed, next, err := record.Seal(at, one, with.restored)
		if err != nil {
			return store.Commit{}, written{}, sealError(err)
		}
		c.Events = append(c.Events, sealed)
		at = next
	}
	c.Next = at
	w := written{event: c.Events[len(c.Events)-1], next: at}
	if with.opens != nil {
		row := *with.opens
		row.Seq, row.Revision = w.event.Seq, w.event.Revision
		w.opened = &row
		c.Reviews = append(c.Reviews, row)
	}
	return c, w, nil
}

// endReviews are the events and rows that end reviews before ev: the one it resolves,
// the one that it supersedes, and all that a move overtakes.
func (e *Engine) endReviews(ctx context.Context, inst record.Instance, ev record.Event, with extras) ([]record.Event, []store.Review, error) {
	var events []record.Event
	var rows []store.Review
	end := func(open workflow.OpenReview, how record.Review) error {
		row, err := e.cfg.Store.Review(ctx, open.ID)
		if err != nil {
			if !errors.Is(err, store.ErrNotFound) {
				return storeError("read the review", err)
			}
			row = store.Review{ID: open.ID, Instance: inst.ID, Workflow: inst.Workflow, Action: open.Action}
		}
		how.ID = open.ID
		rows = append(rows, closeRow(row, how, ev))
		events = append(events, newReviewEvent(ev, open.Action, how, inst))
		return nil
	}
	resolved, joined := false, false
	for _, open := range inst.Facts.Reviews {
		var err error
		joined = joined || open.ID == with.joins
		switch {
		case with.resolves != nil && open.ID == with.resolves.row.ID:
			resolved = true
			rows = append(rows, closeRow(with.resolves.row, with.resolves.end, ev))
			if ev.Kind != record.Reviewed {
				events = append(events, newReviewEvent(ev, open.Action, with.resolves.end, inst))
			}
		case ev.Kind == record.Escalated && open.Action == ev.Action:
			if open.Digest == ev.Review.Digest {
				return nil, nil, &alreadyParkedError{open.ID}
			}
			err = end(open, record.Review{Status: record.ReviewSuperseded, Reason: "The same action was asked for with other data."})
		case ev.Kind.Revises():
			err = end(open, record.Review{Status: record.ReviewStale, Reason: describeOvertaking(ev)})
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if with.resolves != nil && !resolved {
		return nil, nil, &reviewClosedError{with.resolves.row.ID}
	}
	if with.joins != "" && !joined {
		return nil, nil, &reviewClosedError{with.joins}
	}
	return events, rows, nil
}

// newReviewEvent is the event that ends a review beside cause, by whoever caused it.
func newReviewEvent(cause record.Event, action string, how record.Review, inst record.Instance) record.Event {
	ev := record.Event{
		Kind: record.Reviewed, Instance: inst.ID, Time: cause.Time, Principal: cause.Principal, Role: cause.Role,
		Workflow: inst.Workflow, Version: inst.Version, DefinitionHash: inst.DefinitionHash,
		Action: action, From: inst.State, To: inst.State, Status: inst.Status, Review: &how,
	}
	if how.By != "" {
		ev.Principal, ev.Role = how.By, string(RoleReviewer)
	}
	return ev
}

// closeRow is a row after its review has ended: without the data and without what is large
// of the evidence, which only an open one needs. One that was raised waits on.
func closeRow(row store.Review, how record.Review, cause record.Event) store.Review {
	if how.Status == record.ReviewOpen {
		row.Priority, row.ExpiresAt = how.Priority, time.Time{}
		return row
	}
	row.Status, row.Data, row.Evidence = how.Status, nil, forEvent(row.Evidence)
	row.Resolution, row.By, row.Channel, row.Reason = how.Resolution, how.By, how.Channel, how.Reason
	row.ClosedAt = cause.Time
	return row
}

// describeOvertaking says what a move did to a review that waited.
func describeOvertaking(ev record.Event) string {
	switch ev.Kind {
	case record.RolledBack:
		return "The instance was rolled back."
	case record.Undone:
		return fmt.Sprintf("The move %q was undone.", ev.Action)
	case record.Redone:
		return fmt.Sprintf("The move %q was made again.", ev.Action)
	case record.Migrated:
		return fmt.Sprintf("The instance was migrated to version %d.", ev.Version)
	case record.Cancelling:
		return "The instance was cancelled."
	case record.Advanced:
		return fmt.Sprintf("The instance moved on by %q.", ev.Action)
	default:
		return fmt.Sprintf("The instance was %s.", ev.Kind)
	}
}
