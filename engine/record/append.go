package record

import "fmt"

// CheckAppend checks before a store writes that events are sealed, follow one another
// in one instance from seq expect+1 on, lead to next and keep to the limits. It guards
// against a caller's mistake and verifies no hash.
func CheckAppend(expect int64, events []Event, next Instance) error {
	if len(events) == 0 {
		return newIllegalStep("nothing to append")
	}
	for i, e := range events {
		switch {
		case e.seal.body == nil || e.Hash == "":
			return newIllegalStep("event %d of instance %s is not sealed", e.Seq, e.Instance)
		case e.Instance != next.ID || e.Seq != expect+1+int64(i):
			return newIllegalStep("event %d of instance %s in place of event %d of %s", e.Seq, e.Instance, expect+1+int64(i), next.ID)
		case i > 0 && e.PrevHash != events[i-1].Hash:
			return newIllegalStep("event %d of instance %s does not follow the one before", e.Seq, e.Instance)
		case len(e.seal.body) > MaxEvent:
			return fmt.Errorf("%w: an event of %d bytes; the limit is %d", ErrTooLarge, len(e.seal.body), MaxEvent)
		}
	}
	last := events[len(events)-1]
	switch {
	case next.Seq != last.Seq || next.Revision != last.Revision || next.Head != last.Hash:
		return newIllegalStep("instance %s is at %d, its last event at %d", next.ID, next.Seq, last.Seq)
	case len(next.Context) > MaxContext:
		return fmt.Errorf("%w: a context of %d bytes; the limit is %d", ErrTooLarge, len(next.Context), MaxContext)
	}
	return nil
}
