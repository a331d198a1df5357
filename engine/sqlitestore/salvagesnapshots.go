package sqlitestore

import (
	"context"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
)

// hasSnapshot reports whether an event is one that the engine stores a snapshot with.
func hasSnapshot(e record.Event) bool { return e.Kind == record.Checkpointed || e.Rollback != nil }

// refold makes the snapshots of an instance, up to the event that it is at, what its events
// lead to. One behind a gap stays if it is what its digest says and an event names it;
// else it is dropped. What was wrong is noted.
func (s *salvor) refold(ctx context.Context, p patient, is int64, found *DamagedInstance) error {
	states, wanted := p.states(is)
	have := map[int64]bool{} // by seq
	for _, snapshot := range p.snapshots {
		if snapshot.Seq > is {
			continue // gone with the events that led to it
		}
		have[snapshot.Seq] = true
		state, ok := states[snapshot.Seq]
		switch {
		case !ok && snapshot.digested && p.vouches(snapshot.Instance):
		case !ok:
			found.Dropped = append(found.Dropped, snapshot.Revision)
			if _, err := s.tx.ExecContext(ctx, `DELETE FROM snapshots WHERE n = ? AND revision = ?`, p.n, snapshot.Revision); err != nil {
				return err
			}
		case record.DigestState(state) != record.DigestState(snapshot.Instance):
			found.Refolded = append(found.Refolded, snapshot.Revision)
			fallthrough
		case !snapshot.digested:
			if err := s.putSnapshot(ctx, p.n, state); err != nil {
				return err
			}
		}
	}
	lost := slices.ContainsFunc(s.result.Tables, func(t DamagedTable) bool { return t.Name == "snapshots" })
	for _, state := range wanted {
		if have[state.Seq] {
			continue
		}
		if lost {
			found.Refolded = append(found.Refolded, state.Revision)
		}
		if err := s.putSnapshot(ctx, p.n, state); err != nil {
			return err
		}
	}
	return nil
}

func (s *salvor) putSnapshot(ctx context.Context, n int64, state record.Instance) error {
	doc, err := encodeSnapshot(state)
	if err != nil {
		return err
	}
	_, err = s.tx.ExecContext(ctx, `INSERT OR REPLACE INTO snapshots (n, revision, instance, context) VALUES (?, ?, ?, ?)`,
		n, state.Revision, doc, orEmpty(state.Context))
	return err
}

// states returns what the whole events lead to, by seq, up to one of them, and those states
// among them that a snapshot was made of. They begin at the first event, or at the snapshot
// that stands for those that were removed.
func (p patient) states(upTo int64) (states map[int64]record.Instance, wanted []record.Instance) {
	states = map[int64]record.Instance{}
	floor := p.floor()
	if floor.Seq > 0 {
		states[floor.Seq] = floor
	}
	p.foldFrom(floor, func(e record.Event, state record.Instance) {
		if state.Seq > upTo {
			return
		}
		states[state.Seq] = state
		if hasSnapshot(e) {
			wanted = slices.DeleteFunc(wanted, func(w record.Instance) bool { return w.Revision == state.Revision })
			wanted = append(wanted, state)
		}
	})
	return states, wanted
}

// floor is the snapshot that the newest truncated event names, the zero Instance without one.
func (p patient) floor() record.Instance {
	for _, e := range slices.Backward(p.events) {
		t := e.Truncation
		if t == nil {
			continue
		}
		for _, s := range p.snapshots {
			if s.Seq == t.UpTo && s.Head == t.Hash && (t.Floor == "" && s.digested || t.Floor == record.DigestState(s.Instance)) {
				return s.Instance
			}
		}
		break
	}
	return record.Instance{}
}

// vouches reports whether an event ends where a snapshot says that it was made.
func (p patient) vouches(inst record.Instance) bool {
	return inst.ID == p.id && slices.ContainsFunc(p.events, func(e record.Event) bool { return e.Seq == inst.Seq && e.Hash == inst.Head })
}
