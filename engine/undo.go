package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
)

// Undo takes the last move back: it restores the state, context and facts from before it. Another Undo
// takes back the move before. Undo adds an event; nothing is erased. States that only that move visited no
// longer count as visited.
//
// checkTakeBack decides who may undo. Only an operator may take back a move that had an external effect:
//   - a person approved it in a review;
//   - it called another server's tool;
//   - it fetched evidence from a source with side effects.
//
// The error has CodeNothingToUndo in these cases:
//   - at the start, and right after a migration;
//   - if the earlier history was imported or removed;
//   - if there is no move among the last 10,000 events.
//
// It has CodeTooManyEvents if the caller caused Limits.Events events since the last move; an undo or redo by
// anyone but an operator does not count as a move.
func (e *Engine) Undo(ctx context.Context, p Principal, req UndoRequest) (MovedResult, error) {
	return e.undoOrRedo(ctx, p, req, RightUndo)
}

// Redo makes the last undone move again, exactly as it was and without judging it again. After a new move,
// a rollback or a migration there is nothing to redo. Principals that may undo a move may also redo it.
func (e *Engine) Redo(ctx context.Context, p Principal, req UndoRequest) (MovedResult, error) {
	return e.undoOrRedo(ctx, p, req, RightRedo)
}

func (e *Engine) undoOrRedo(ctx context.Context, p Principal, req UndoRequest, op Right) (MovedResult, error) {
	m := e.takeBack(op, req.ID, req.Key, req.ExpectedRevision, "changed")
	m.content = func() []string { return []string{revisionText(req.ExpectedRevision)} }
	plan := func(ctx context.Context, inst *instance) (change, error) { return e.planUndo(ctx, *inst, op) }
	return commitPlan(ctx, e, p, m, plan, func(a commitResult) MovedResult {
		message := fmt.Sprintf("Undid %q: in state %q again. The history is kept.", a.event.Action, a.State)
		if op == RightRedo {
			message = fmt.Sprintf("Made %q again: in state %q.", a.event.Action, a.State)
		}
		return MovedResult{Position: a.Position, Action: a.event.Action, From: a.event.From, Context: a.context, Message: message, Replayed: a.replayed}
	})
}

func (e *Engine) planUndo(ctx context.Context, inst instance, op Right) (change, error) {
	find, kind := record.UndoHistory.LastMove, record.Undone
	if op == RightRedo {
		find, kind = record.UndoHistory.LastUndone, record.Redone
	}
	line, err := e.loadUndoHistory(ctx, inst.Instance, func(line record.UndoHistory) bool { _, found := find(line); return found })
	if err != nil {
		return change{}, err
	}
	move, found := find(line)
	target := move.Before
	if op == RightRedo {
		target = move.Event.Revision
	}
	if !found {
		return change{}, inst.nothingToUndo(op, line)
	}
	if tool := cmp.Or(e.findGate(inst.Workflow, move.Event.Action), findMoveGate(move.Event)); op == RightRedo && tool != "" {
		return change{}, inst.gatedAction(move.Event.Action, tool)
	}
	if why := describeEffect(move.Event, e.cfg.ReadOnlySources); why != "" && inst.by.Role != RoleOperator {
		return change{}, newError(CodeForbidden, "", "The move %q had an external effect: %s. Only an operator may %s it.", move.Event.Action, why, op.verb()).
			withHint("Ask an operator, or perform one of nextActions.")
	}
	restored, err := e.instanceAt(ctx, inst.ID, target)
	ev := e.newEvent(inst.by, kind)
	ev.Action, ev.Rollback = move.Event.Action, &record.Rollback{Restores: target}
	return change{event: ev, restored: &restored}, err
}

// findMoveGate returns the gate whose call made a move, "" for none. A call with a deadline was made after the
// move, in the state that it led to.
func findMoveGate(move record.Event) string {
	if move.Call == nil || !move.Call.Deadline.IsZero() {
		return ""
	}
	return move.Call.Gate
}

func (r Right) verb() string {
	switch r {
	case RightRollback:
		return "roll back"
	case RightRedo:
		return "redo"
	case RightCancel:
		return "cancel"
	default:
		return "undo"
	}
}

func (i instance) nothingToUndo(op Right, line record.UndoHistory) *Error {
	pos := i.position()
	out := &Error{Code: CodeNothingToUndo, Current: &pos, Message: "There is no move to undo.", Hint: "Look at the status; rolling back to a checkpoint may reach further."}
	switch {
	case op == RightRedo:
		out.Message, out.Hint = "There is no undone move to redo.", "A new move, a rollback and a migration leave nothing to redo; perform the action instead."
	case line.MigratedAt() > 0:
		out.Message = fmt.Sprintf("No move was made since the migration to version %d, and earlier moves cannot be undone.", i.Version)
	case i.Seq > maxUndoEvents:
		out.Message = fmt.Sprintf("There is no move to undo among the last %d events of the instance; older moves cannot be undone.", maxUndoEvents)
	case line.FirstRevision() > 1:
		out.Message = "There is no move to undo: the earlier history was removed."
	}
	return out
}

// maxUndoEvents limits how many events undo and redo look back, because the events are held in memory.
const maxUndoEvents = 10_000

// loadUndoHistory returns what can be undone and redone of an instance as it was loaded, without later
// commits. It reads back only until enough reports true: earlier events do not change which moves are the
// newest.
func (past history) loadUndoHistory(ctx context.Context, inst record.Instance, enough func(record.UndoHistory) bool) (line record.UndoHistory, err error) {
	for _, reach := range []int64{snapshotInterval, 16 * snapshotInterval, maxUndoEvents} {
		line, err = record.ReadUndoHistory(past.store.Events(ctx, store.EventQuery{
			Instance: inst.ID, Kinds: append(record.RevisingKinds(), record.Called), AfterSeq: max(0, inst.Seq-reach), MaxRevision: inst.Revision,
		}))
		if err != nil {
			return record.UndoHistory{}, StoreError("read the history", err)
		}
		if inst.Seq <= reach || enough(line) {
			break
		}
	}
	return line, nil
}

// describeEffect describes the external effect of a move, which undoing the move does not reverse; "" if there
// is none. A source that is unknown here counts as one with side effects.
func describeEffect(move record.Event, readOnly []string) string {
	if move.Review != nil {
		return "a person approved it in a review"
	}
	if move.Call != nil {
		return fmt.Sprintf("%s was called", move.Call.Gate)
	}
	if move.Decision == nil {
		return ""
	}
	for _, f := range move.Decision.Evidence {
		switch f.Failure {
		case judge.FailureNotConfigured, judge.FailureArgument, judge.FailureNotReadOnly, judge.FailureUnproven:
			continue // the source was never queried
		default:
		}
		if !slices.Contains(readOnly, f.Source) {
			return fmt.Sprintf("the evidence %q was fetched from a source that is not read-only", f.Name)
		}
	}
	return ""
}

// rejectCrossing rejects a rollback by anyone but an operator if an external effect or a migration lies in
// between.
func (e *Engine) rejectCrossing(ctx context.Context, inst instance, revision int64) error {
	if inst.by.Role == RoleOperator {
		return nil
	}
	line, err := e.loadUndoHistory(ctx, inst.Instance, func(line record.UndoHistory) bool {
		return !line.IsIncomplete() && line.FirstRevision() > 0 && line.FirstRevision() <= revision
	})
	if err != nil {
		return err
	}
	why := ""
	if inst.Seq > maxUndoEvents && (revision < line.FirstRevision() || line.IsIncomplete()) {
		why = fmt.Sprintf("it goes back more than %d events", maxUndoEvents)
	}
	if revision < line.MigratedAt() {
		why = "an operator migrated the instance since"
	}
	for _, m := range line.MovesBetween(revision) {
		if effect := describeEffect(m.Event, e.cfg.ReadOnlySources); effect != "" {
			why = fmt.Sprintf("the move %q had an external effect: %s", m.Event.Action, effect)
		}
	}
	if why == "" {
		return nil
	}
	return &Error{Code: CodeForbidden, Message: fmt.Sprintf("Only an operator may roll back there: %s.", why), Hint: "Ask an operator, or perform one of nextActions."}
}
