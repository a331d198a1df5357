package record_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/record"
)

// The last move and the last undone move that the newest events of a history give are right, whatever
// precedes them. So are the moves between two of their revisions, unless an earlier revision was restored.
func TestTheEndOfAHistoryIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := drawKinds(t)
		whole := undoHistory(t, events)
		for first := range events {
			part := undoHistory(t, events[first:])
			for name, find := range map[string]func(record.UndoHistory) (record.Move, bool){"move": record.UndoHistory.LastMove, "undone": record.UndoHistory.LastUndone} {
				got, known := find(part)
				want, found := find(whole)
				if known && (!found || got.Before != want.Before || got.Event.Revision != want.Event.Revision || (got.Event.Call == nil) != (want.Event.Call == nil)) {
					t.Fatalf("from event %d the last %s belongs to revision %d, want %d", first, name, got.Event.Revision, want.Event.Revision)
				}
			}
			for revision := part.FirstRevision(); !part.IsIncomplete() && revision > 0 && revision <= events[len(events)-1].Revision; revision++ {
				if got, want := len(part.MovesBetween(revision)), len(whole.MovesBetween(revision)); got != want && revision >= whole.MigratedAt() {
					t.Fatalf("from event %d, %d moves lie between now and revision %d, want %d", first, got, revision, want)
				}
			}
		}
	})
}

func undoHistory(t *rapid.T, events []record.Event) record.UndoHistory {
	line, err := record.ReadUndoHistory(func(yield func(record.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// drawKinds draws the kinds and revisions of a history.
func drawKinds(t *rapid.T) []record.Event {
	events := []record.Event{{Kind: record.Started, Seq: 1, Revision: 1}}
	for range rapid.IntRange(1, 25).Draw(t, "events") {
		last := events[len(events)-1]
		next := record.Event{Kind: record.Advanced, Seq: last.Seq + 1, Revision: last.Revision + 1}
		line := undoHistory(t, events)
		move, done := line.LastMove()
		undone, again := line.LastUndone()
		switch rapid.SampledFrom([]string{"advance", "advance", "undo", "undo", "redo", "roll back", "call", "migrate", "reconcile"}).Draw(t, "what") {
		case "undo":
			if done {
				next.Kind, next.Rollback = record.Undone, &record.Rollback{Restores: move.Before}
			}
		case "redo":
			if again {
				next.Kind, next.Rollback = record.Redone, &record.Rollback{Restores: undone.Event.Revision}
			}
		case "roll back":
			next.Kind, next.Rollback = record.RolledBack, &record.Rollback{Restores: rapid.Int64Range(max(1, line.MigratedAt()), last.Revision).Draw(t, "to")}
		case "call":
			next = record.Event{Kind: record.Called, Seq: last.Seq + 1, Revision: last.Revision, Call: &record.Call{}}
		case "migrate":
			next.Kind = record.Migrated
		case "reconcile":
			next.Kind = record.Reconciled
		}
		events = append(events, next)
	}
	return events
}
