package record

import (
	"fmt"
	"iter"
)

// NewChainFrom verifies a history whose beginning was removed: it expects the event right
// after floor, the instance after the last removed event. It cannot verify floor itself.
func NewChainFrom(floor Instance) Chain {
	return Chain{instance: floor.ID, seq: floor.Seq, revision: floor.Revision, head: floor.Head}
}

// VerifyEvent checks one event without its neighbours: its hash covers its bytes and its
// previous hash, and its fields agree with its bytes. The error is a *BrokenError.
func VerifyEvent(e Event) error {
	alone := Chain{instance: e.Instance, seq: e.Seq - 1, revision: e.Revision, head: e.PrevHash}
	if e.Seq < 1 {
		return &BrokenError{Instance: e.Instance, Seq: e.Seq, How: "an event is numbered from 1"}
	}
	return alone.Add(e)
}

// FoldFrom is FoldAt for a history whose beginning was removed: it folds from floor on. A rollback to a revision below it is ErrNoRevision.
func FoldFrom(floor Instance, events iter.Seq2[Event, error], revision int64) (Instance, error) {
	if revision != 0 && revision < floor.Revision {
		return Instance{}, fmt.Errorf("%w: %d, the history begins at %d", ErrNoRevision, revision, floor.Revision)
	}
	return foldFrom(floor, events, revision)
}

// CheckTruncation checks before a store removes the beginning of a history that the last
// event records the removal, and that floor is where it ends.
func CheckTruncation(events []Event, floor Instance) error {
	if len(events) == 0 {
		return newIllegalStep("no event names what is removed")
	}
	last := events[len(events)-1]
	t := last.Truncation
	switch {
	case last.Kind != Truncated || t == nil:
		return newIllegalStep("event %d of instance %s is not a truncated event", last.Seq, last.Instance)
	case floor.ID != last.Instance || floor.Seq != t.UpTo || floor.Head != t.Hash || floor.Revision != t.Revision:
		return newIllegalStep("the floor is event %d of instance %s, what is removed ends with event %d of %s", floor.Seq, floor.ID, t.UpTo, last.Instance)
	case t.Floor != "" && t.Floor != DigestState(floor):
		return newIllegalStep("the floor is not the state of instance %s that the truncated event names", floor.ID)
	case floor.Seq >= events[0].Seq:
		return newIllegalStep("event %d of instance %s is removed before it is written", floor.Seq, floor.ID)
	}
	return nil
}
