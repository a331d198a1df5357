package memstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Truncate implements store.Store.
func (s *Store) Truncate(ctx context.Context, c store.Commit, upTo int64, floor record.Instance) error {
	if err := record.CheckTruncation(c.Events, floor); err != nil {
		return err
	}
	if upTo != floor.Seq {
		return fmt.Errorf("%w: events up to %d are to go, the floor is event %d", record.ErrIllegalStep, upTo, floor.Seq)
	}
	floor = floor.Clone()
	return s.commit(ctx, c, func(h *history) { s.truncate(h, floor) })
}

// truncate makes new lists: iterators may still go along the old ones.
func (s *Store) truncate(h *history, floor record.Instance) {
	at := slices.IndexFunc(h.events, func(e record.Event) bool { return e.Seq > floor.Seq })
	for _, e := range h.events[:at] {
		if e.Key != nil {
			delete(s.keys, e.Key.Scope)
		}
	}
	h.removed += at
	h.events = slices.Clone(h.events[at:])
	kept := []record.Instance{floor}
	for _, snapshot := range h.snapshots {
		if snapshot.Revision > floor.Revision {
			kept = append(kept, snapshot)
		}
	}
	h.snapshots = kept
}
