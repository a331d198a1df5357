package record

import (
	"fmt"
	"iter"
	"slices"

	"github.com/gavel-mcp/gavel/judge"
)

// UndoHistory holds the moves up to the present revision that undo can take back. It also holds the moves that redo
// can make again: those undone since the last new move.
//
// It holds only moves that were judged in this store. A migration, an imported step and a reconciliation reset it:
// nothing before them can be undone step by step. A rollback returns to the history of the revision that it restores.
type UndoHistory struct {
	done, undone *link
	at           map[int64]*link // the moves that led to each revision, since the last migration
	first        int64           // the lowest known revision
	migrated     int64           // the revision of the last migration, 0 for none
	incomplete   bool            // a revision before the first was restored, or moves before it may be cut off
}

// Move is an applied move.
type Move struct {
	// Event is the move without its patch, and with only the evidence of its decision, because histories
	// are held in memory.
	Event Event
	// Before is the revision that the move started from.
	Before int64
}

// link is a list that grows at its head; tails are shared and never modified.
type link struct {
	move  *Move
	under *link
}

// ReadUndoHistory reads events in order, possibly from a truncated history. Events that begin no
// revision may be left out, except Called events: a move cannot take calls back.
func ReadUndoHistory(events iter.Seq2[Event, error]) (UndoHistory, error) {
	l := UndoHistory{at: map[int64]*link{}}
	for e, err := range events {
		if err != nil {
			return UndoHistory{}, err
		}
		if e.Kind == Called {
			l.addCall(e)
		}
		if !e.Kind.Revises() {
			continue
		}
		if !e.Kind.IsKnown() {
			return UndoHistory{}, fmt.Errorf("%w: %q", ErrUnknownKind, e.Kind)
		}
		l.add(e)
	}
	return l, nil
}

func (l *UndoHistory) add(e Event) {
	e = trimEvent(e)
	if l.first == 0 {
		l.first = e.Revision
		if e.Seq > 1 { // earlier events were removed
			l.first = e.Revision - 1
		}
	}
	if e.Rollback != nil && e.Rollback.Restores < l.first {
		l.incomplete = true
	}
	switch e.Kind {
	case Advanced:
		l.done, l.undone = &link{&Move{Event: e, Before: e.Revision - 1}, l.done}, nil
	case Undone:
		top := l.done
		if top == nil || top.move.Before != e.Rollback.Restores {
			l.done, l.undone = l.at[e.Rollback.Restores], nil
			break
		}
		l.done, l.undone = top.under, &link{top.move, l.undone}
	case Redone:
		top := l.undone
		if top == nil || top.move.Event.Revision != e.Rollback.Restores {
			l.done, l.undone = l.at[e.Rollback.Restores], nil
			break
		}
		l.done, l.undone = &link{top.move, l.done}, top.under
	case RolledBack:
		l.done, l.undone = l.at[e.Rollback.Restores], nil
	case Migrated:
		l.done, l.undone, l.migrated = nil, nil, e.Revision
		clear(l.at)
	case Started, Imported, Reconciled:
		l.done, l.undone = nil, nil
		l.incomplete = l.incomplete || l.first > 1 // the moves that it cuts off are before the first revision
	case Refused, Prechecked, Checkpointed, Cancelling, Escalated, Reviewed, Called, Settled, Released, Truncated:
	}
	l.at[e.Revision] = l.done
}

// addCall marks the move that led to the present revision, in which a call was made. Undoing the move does not undo
// the call.
func (l *UndoHistory) addCall(e Event) {
	if l.done == nil || l.done.move.Event.Call != nil || l.first == 0 {
		l.incomplete = l.incomplete || l.done == nil && l.first > 1 // it was made after a move before the first revision
		return
	}
	move := *l.done.move
	move.Event.Call = e.Call
	l.done = &link{&move, l.done.under}
	l.at[e.Revision] = l.done
}

// trimEvent drops what undo does not need: the bytes, the patch and most of the decision.
func trimEvent(e Event) Event {
	e.seal, e.Patch, e.Freezes = seal{}, nil, nil
	if e.Decision == nil {
		return e
	}
	var fetched []judge.Evidence
	for _, f := range e.Decision.Evidence {
		fetched = append(fetched, judge.Evidence{Name: f.Name, Source: f.Source, Failure: f.Failure})
	}
	e.Decision = &Decision{}
	e.Decision.Evidence = fetched
	return e
}

// LastMove returns the move that an undo takes back, and false if there is none.
func (l UndoHistory) LastMove() (Move, bool) { return l.done.firstMove() }

// LastUndone returns the move that a redo makes again, and false if there is none.
func (l UndoHistory) LastUndone() (Move, bool) { return l.undone.firstMove() }

// MigratedAt returns the revision of the last migration, 0 without one.
func (l UndoHistory) MigratedAt() int64 { return l.migrated }

// FirstRevision returns the lowest known revision; if it is above 1, earlier ones were removed.
func (l UndoHistory) FirstRevision() int64 { return l.first }

// IsIncomplete reports whether a rollback went before FirstRevision, or moves before it may have been cut off. Moves
// may then be missing, including from MovesBetween. A move that LastMove or LastUndone returns is correct even then.
func (l UndoHistory) IsIncomplete() bool { return l.incomplete }

// MovesBetween returns the moves that are taken back or made again when going from the present
// revision to another. Moves before the last migration are unknown.
func (l UndoHistory) MovesBetween(revision int64) []Move {
	var out []Move
	here, there := l.done.listMoves(), l.at[revision].listMoves()
	for _, m := range here {
		if !slices.Contains(there, m) {
			out = append(out, *m)
		}
	}
	for _, m := range there {
		if !slices.Contains(here, m) {
			out = append(out, *m)
		}
	}
	return out
}

func (l *link) firstMove() (Move, bool) {
	if l == nil {
		return Move{}, false
	}
	return *l.move, true
}

func (l *link) listMoves() []*Move {
	var out []*Move
	for ; l != nil; l = l.under {
		out = append(out, l.move)
	}
	return out
}
