package record

import (
	"fmt"
	"iter"
)

// Fold takes one step back through a history: it returns the instance after e.
// It checks that the step is legal, not that the hashes are right; Verify does.
// restore is asked for the instance at the revision that a rollback names.
func Fold(prev Instance, e Event, restore func(revision int64) (Instance, error)) (Instance, error) {
	if !e.Kind.isRestore() || e.Rollback == nil {
		return applyEvent(prev, e, nil)
	}
	restored, err := restore(e.Rollback.Restores)
	if err != nil {
		return Instance{}, fmt.Errorf("event %d: revision %d: %w", e.Seq, e.Rollback.Restores, err)
	}
	return applyEvent(prev, e, &restored)
}

// FoldAt folds a whole history from its first event up to a revision and the
// events that left it as it was; 0 is the newest one. The events are held in
// memory meanwhile, of the contexts only those that a rollback restores. A
// revision that the history does not reach is ErrNoRevision.
func FoldAt(events iter.Seq2[Event, error], revision int64) (Instance, error) {
	return foldFrom(Instance{}, events, revision)
}

func foldFrom(inst Instance, events iter.Seq2[Event, error], revision int64) (Instance, error) {
	var history []Event
	needed := map[int64]bool{}
	for e, err := range events {
		if err != nil {
			return Instance{}, err
		}
		if revision != 0 && e.Revision > revision {
			break
		}
		e.seal = seal{} // the fold needs no bytes
		history = append(history, e)
		if e.Rollback != nil {
			needed[e.Rollback.Restores] = true
		}
	}
	kept := map[int64]Instance{}
	if inst.Seq > 0 {
		kept[inst.Revision] = inst
	}
	restore := func(r int64) (Instance, error) {
		if then, ok := kept[r]; ok {
			return then, nil
		}
		return Instance{}, ErrNoRevision
	}
	for _, e := range history {
		next, err := Fold(inst, e, restore)
		if err != nil {
			return Instance{}, err
		}
		inst = next
		if needed[inst.Revision] {
			kept[inst.Revision] = inst
		}
	}
	if inst.Seq == 0 || (revision != 0 && inst.Revision != revision) {
		return Instance{}, fmt.Errorf("%w: %d, the history ends at %d", ErrNoRevision, revision, inst.Revision)
	}
	return inst, nil
}
