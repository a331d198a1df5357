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
	done, undone *moveList
	at           map[int64]*moveList // the moves that led to each revision, since the last migration
	first        int64               // the lowest known revision
	migrated     int64               // the revision of the last migration, 0 for none
	incomplete   bool                // a revision before the first was restored, or moves before it may be cut off
}

// Move is an applied move.
type Move struct {
	// Event is the move without its patch, and with only the evidence of its decision, because histories
	// are held in memory.
	Event Event
	// Before is the revision that the move started from.
	Before int64
}

// moveList is a list that grows at its head; tails are shared and never modified.
type moveList struct {
	move *Move
	rest *moveList
}

// ReadUndoHistory reads events in order, possibly from a truncated history. Events that begin no
// revision may be left out, except Called events: a move cannot take calls back.
func ReadUndoHistory(events iter.Seq2[Event, error]) (UndoHistory, error) {
	l := UndoHistory{at: map[int64]*moveList{}}
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

func (h *UndoHistory) add(e Event) {
	e = trimEvent(e)
	if h.first == 0 {
		h.first = e.Revision
		if e.Seq > 1 { // earlier events were removed
			h.first = e.Revision - 1
		}
	}
	if e.Rollback != nil && e.Rollback.Restores < h.first {
		h.incomplete = true
	}
	switch e.Kind {
	case Advanced:
		h.done, h.undone = &moveList{&Move{Event: e, Before: e.Revision - 1}, h.done}, nil
	case Undone:
		top := h.done
		if top == nil || top.move.Before != e.Rollback.Restores {
			h.done, h.undone = h.at[e.Rollback.Restores], nil
			break
		}
		h.done, h.undone = top.rest, &moveList{top.move, h.undone}
	case Redone:
		top := h.undone
		if top == nil || top.move.Event.Revision != e.Rollback.Restores {
			h.done, h.undone = h.at[e.Rollback.Restores], nil
			break
		}
		h.done, h.undone = &moveList{top.move, h.done}, top.rest
	case RolledBack:
		h.done, h.undone = h.at[e.Rollback.Restores], nil
	case Migrated:
		h.done, h.undone, h.migrated = nil, nil, e.Revision
		clear(h.at)
	case Started, Imported, Reconciled:
		h.done, h.undone = nil, nil
		h.incomplete = h.incomplete || h.first > 1 // the moves that it cuts off are before the first revision
	case Refused, Prechecked, Checkpointed, KindCancelled, Escalated, Reviewed, Called, Settled, Released, Truncated, Heard:
	}
	h.at[e.Revision] = h.done
}

// addCall marks the move that led to the present revision, in which a call was made. Undoing the move does not undo
// the call.
func (h *UndoHistory) addCall(e Event) {
	if h.done == nil || h.done.move.Event.Call != nil || h.first == 0 {
		h.incomplete = h.incomplete || h.done == nil && h.first > 1 // it was made after a move before the first revision
		return
	}
	move := *h.done.move
	move.Event.Call = e.Call
	h.done = &moveList{&move, h.done.rest}
	h.at[e.Revision] = h.done
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
func (h UndoHistory) LastMove() (Move, bool) { return h.done.firstMove() }

// LastUndone returns the move that a redo makes again, and false if there is none.
func (h UndoHistory) LastUndone() (Move, bool) { return h.undone.firstMove() }

// MigratedAt returns the revision of the last migration, 0 without one.
func (h UndoHistory) MigratedAt() int64 { return h.migrated }

// FirstRevision returns the lowest known revision; if it is above 1, earlier ones were removed.
func (h UndoHistory) FirstRevision() int64 { return h.first }

// IsIncomplete reports whether a rollback went before FirstRevision, or moves before it may have been cut off. Moves
// may then be missing, including from MovesBetween. A move that LastMove or LastUndone returns is correct even then.
func (h UndoHistory) IsIncomplete() bool { return h.incomplete }

// MovesBetween returns the moves that are taken back or made again when going from the present
// revision to another. Moves before the last migration are unknown.
func (h UndoHistory) MovesBetween(revision int64) []Move {
	var out []Move
	here, there := h.done.listMoves(), h.at[revision].listMoves()
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

func (l *moveList) firstMove() (Move, bool) {
	if l == nil {
		return Move{}, false
	}
	return *l.move, true
}

func (l *moveList) listMoves() []*Move {
	var out []*Move
	for ; l != nil; l = l.rest {
		out = append(out, l.move)
	}
	return out
}
