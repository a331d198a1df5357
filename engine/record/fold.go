package record

import (
	"fmt"
	"iter"
)

// Fold applies one recorded event and returns the instance after it. It checks that the step is
// legal, but not the hashes; Verify does that. restore returns the instance at the revision that a
// rollback names.
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

// FoldAt folds a whole history from its first event through the last event of the given revision; 0
// means the newest. It holds all events in memory, but only those contexts that a rollback restores.
// It returns ErrNoRevision if the history does not reach the revision.
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
