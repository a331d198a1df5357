package record

import (
	"fmt"
	"iter"
)

// NewChainFrom returns a Chain for a history whose beginning was removed. floor is the instance as the last
// removed event left it. The Chain expects the event right after that one, and cannot verify floor itself.
func NewChainFrom(floor Instance) Chain {
	return Chain{instance: floor.ID, seq: floor.Seq, revision: floor.Revision, head: floor.Head}
}

// VerifyEvent checks one event without its neighbours: Hash must cover the event's bytes and PrevHash, and
// the fields must agree with the bytes. The error is a *BrokenError.
func VerifyEvent(e Event) error {
	alone := Chain{instance: e.Instance, seq: e.Seq - 1, revision: e.Revision, head: e.PrevHash}
	if e.Seq < 1 {
		return &BrokenError{Instance: e.Instance, Seq: e.Seq, How: "events are numbered from 1"}
	}
	return alone.Add(e)
}

// FoldFrom is FoldAt for a history whose beginning was removed: it starts from floor, the instance after the last
// removed event. It returns ErrNoRevision if revision, or one that a rollback restores, lies before floor.
func FoldFrom(floor Instance, events iter.Seq2[Event, error], revision int64) (Instance, error) {
	if revision != 0 && revision < floor.Revision {
		return Instance{}, fmt.Errorf("%w: %d, the history begins at %d", ErrNoRevision, revision, floor.Revision)
	}
	return foldFrom(floor, events, revision)
}

// CheckTruncation is called before a store removes the beginning of a history. It checks that the last of
// events records the removal, and that floor is the instance after the last event to be removed.
func CheckTruncation(events []Event, floor Instance) error {
	if len(events) == 0 {
		return newIllegalStep("no event records the removal")
	}
	last := events[len(events)-1]
	t := last.Truncation
	switch {
	case last.Kind != Truncated || t == nil:
		return newIllegalStep("event %d of instance %s is not a truncated event", last.Seq, last.Instance)
	case floor.ID != last.Instance || floor.Seq != t.UpTo || floor.Head != t.Hash || floor.Revision != t.Revision:
		return newIllegalStep("the floor is event %d of instance %s, but the removal ends with event %d of %s", floor.Seq, floor.ID, t.UpTo, last.Instance)
	case t.Floor != DigestState(floor):
		return newIllegalStep("the floor is not the state of instance %s that the truncated event names", floor.ID)
	case floor.Seq >= events[0].Seq:
		return newIllegalStep("event %d of instance %s is removed before it is written", floor.Seq, floor.ID)
	}
	return nil
}

// truncationTitle begins the signed text of a truncation. The signed text of an anchor begins with the name
// of a key, which has no space, so the two cannot be mistaken for each other.
const truncationTitle = "gavel truncation v1"

// Text returns the text that is signed in the note of a truncation. It identifies this truncation of this
// instance and no other.
func (t Truncation) Text(instance string) string {
	return fmt.Sprintf("%s\ninstance %q\nup to %d\nlast hash %s\ncount %d\nrevision %d\nfloor %s\n",
		truncationTitle, instance, t.UpTo, t.Hash, t.Count, t.Revision, t.Floor)
}

// CheckNote checks that Note was signed with one of the keys for this truncation of this instance. Without
// keys, it checks only the text of the note, not its signature. The error wraps ErrNote or ErrSignature.
func (t Truncation) CheckNote(instance string, keys ...*Verifier) error {
	if t.Note == "" {
		return fmt.Errorf("%w: the note is missing", ErrNote)
	}
	text, err := ReadNoteText(t.Note)
	if err == nil && len(keys) > 0 {
		text, err = OpenNote(t.Note, keys...)
	}
	if err != nil {
		return err
	}
	if text != t.Text(instance) {
		return fmt.Errorf("%w: it covers another removal", ErrNote)
	}
	return nil
}

// CheckAppend is called before a store writes events. It checks that they are sealed, that they follow one
// another in one instance from seq expect+1, that next is the instance after them, and that the limits are
// kept. It guards against mistakes of the caller; it computes no hash.
func CheckAppend(expect int64, events []Event, next Instance) error {
	if len(events) == 0 {
		return newIllegalStep("nothing to append")
	}
	for i, e := range events {
		switch {
		case e.seal.body == nil || e.Hash == "":
			return newIllegalStep("event %d of instance %s is not sealed", e.Seq, e.Instance)
		case e.Instance != next.ID || e.Seq != expect+1+int64(i):
			return newIllegalStep("event %d of instance %s where event %d of %s is expected", e.Seq, e.Instance, expect+1+int64(i), next.ID)
		case i > 0 && e.PrevHash != events[i-1].Hash:
			return newIllegalStep("event %d of instance %s does not follow the one before", e.Seq, e.Instance)
		case len(e.seal.body) > MaxEvent:
			return fmt.Errorf("%w: an event of %d bytes; the limit is %d", ErrTooLarge, len(e.seal.body), MaxEvent)
		}
	}
	last := events[len(events)-1]
	switch {
	case next.Seq != last.Seq || next.Revision != last.Revision || next.Head != last.Hash:
		return newIllegalStep("instance %s has seq %d, but its last event has %d", next.ID, next.Seq, last.Seq)
	case len(next.Context) > MaxContext:
		return fmt.Errorf("%w: a context of %d bytes; the limit is %d", ErrTooLarge, len(next.Context), MaxContext)
	}
	return nil
}
