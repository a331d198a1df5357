package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// checkInstances makes every instance of the new store what its events fold to, as far as
// there are events.
func (s *salvor) checkInstances(ctx context.Context) error {
	const orphans = `DELETE FROM contexts WHERE n NOT IN (SELECT n FROM instances)`
	if _, err := s.tx.ExecContext(ctx, orphans); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(s.instances)) {
		h, err := s.loadHistory(ctx, id)
		if err != nil {
			return err
		}
		if err := s.checkInstance(ctx, h); err != nil {
			return err
		}
	}
	_, err := s.tx.ExecContext(ctx, orphans+`; DELETE FROM snapshots WHERE n NOT IN (SELECT n FROM instances)`)
	return err
}

// salvagedHistory is what was saved of one instance.
type salvagedHistory struct {
	id        string
	n         int64
	row       *record.Instance  // nil unless its row and its context were saved
	was       int64             // the last event that is known of
	events    []record.Event    // by seq
	cut       record.Truncation // what was removed from the beginning on purpose, if anything
	snapshots []salvagedSnapshot
	states    map[int64]record.Instance // what the events fold to, by seq
	folded    record.Instance           // the last of them, before the first gap
	floor     bool                      // the fold begins at a snapshot
}

type salvagedSnapshot struct {
	record.Instance
	digested bool
}

func (s *salvor) loadHistory(ctx context.Context, id string) (*salvagedHistory, error) {
	h := &salvagedHistory{id: id, n: s.instances[id], states: map[int64]record.Instance{}}
	switch inst, err := scanInstance(s.tx.QueryRowContext(ctx, `SELECT `+instanceColumns+` FROM instances i JOIN contexts c ON c.n = i.n WHERE i.n = ?`, h.n)); {
	case err == nil && isInstance(inst):
		h.row = &inst
	case err != nil && !errors.Is(err, sql.ErrNoRows) && !errors.Is(err, ErrCorrupt):
		return nil, err
	}
	err := s.tx.QueryRowContext(ctx, `SELECT max(coalesce((SELECT max(seq) FROM instances WHERE n = ?1), 0),
		coalesce((SELECT max(seq) FROM events WHERE n = ?1), 0))`, h.n).Scan(&h.was)
	if err != nil {
		return nil, err
	}
	if h.events, err = queryAll(ctx, s.tx, scanEvent, `SELECT `+eventColumns+` FROM events e WHERE e.n = ? ORDER BY e.seq`, h.n); err != nil {
		return nil, err
	}
	for _, e := range h.events {
		if e.Truncation != nil {
			h.cut = *e.Truncation
		}
	}
	h.snapshots, err = queryAll(ctx, s.tx, func(r row) (snap salvagedSnapshot, err error) {
		var doc, held []byte
		if err := r.Scan(&doc, &held); err != nil {
			return snap, err
		}
		snap.Instance, snap.digested, err = decodeSnapshot(doc, held)
		return snap, err
	}, `SELECT instance, context FROM snapshots WHERE n = ? ORDER BY revision`, h.n)
	h.fold()
	return h, err
}

// isInstance reports whether a row can be one.
func isInstance(i record.Instance) bool {
	return i.ID != "" && i.Workflow != "" && i.State != "" && i.Version > 0 && i.Seq > 0 && i.Revision > 0 && len(i.Head) == 64 &&
		(i.Status == record.Running || i.Status == record.Complete || i.Status == record.Cancelled)
}

// fold folds the events up to the first gap. It begins at the first event, or at the snapshot
// that stands for the removed ones.
func (h *salvagedHistory) fold() {
	for _, snap := range h.snapshots {
		if h.cut.UpTo > 0 && snap.ID == h.id && snap.Seq == h.cut.UpTo && snap.Head == h.cut.Hash &&
			(h.cut.Floor == "" && snap.digested || h.cut.Floor == record.DigestState(snap.Instance)) {
			h.folded, h.floor, h.states[snap.Seq] = snap.Instance, true, snap.Instance
		}
	}
	restore := func(revision int64) (record.Instance, error) {
		for seq := h.folded.Seq; ; seq-- {
			if then, ok := h.states[seq]; !ok {
				return then, record.ErrNoRevision
			} else if then.Revision == revision {
				return then, nil
			}
		}
	}
	for _, e := range h.events {
		if e.Seq <= h.folded.Seq {
			continue
		}
		next, err := record.Fold(h.folded, e, restore)
		if e.Seq != h.folded.Seq+1 || e.PrevHash != h.folded.Head || err != nil {
			break
		}
		h.folded, h.states[next.Seq] = next, next
	}
	if h.floor && len(h.states) == 1 {
		h.folded, h.floor = record.Instance{}, false // no event bears the snapshot out
	}
}

// missing are the events that are lost, up to the last one that is known of. Those behind
// the event kept are not saved.
func (h *salvagedHistory) missing(kept int64) (out []Range) {
	add := func(from, to int64) {
		if from <= to {
			out = append(out, Range{from, to})
		}
	}
	next, before := h.cut.UpTo+1, ""
	for _, e := range h.events {
		if e.Seq < next || e.Seq > kept {
			continue
		}
		if e.Seq == next && before != "" && e.PrevHash != before { // another event was in its place
			add(next-1, next-1)
		}
		add(next, e.Seq-1)
		next, before = e.Seq+1, e.Hash
	}
	add(next, h.was)
	return out
}

// checkInstance makes the rows of an instance what its events fold to.
func (s *salvor) checkInstance(ctx context.Context, h *salvagedHistory) error {
	now, notes := h.folded, []string{}
	switch {
	case h.row != nil && record.DigestState(h.folded) == record.DigestState(*h.row):
	case h.row != nil && h.row.Seq > h.folded.Seq: // it is further than its events lead
		now, notes = *h.row, []string{"no events prove what it is"}
	case now.Seq == 0:
		notes = []string{"could not be rebuilt"}
		if _, err := s.tx.ExecContext(ctx, `DELETE FROM instances WHERE n = ?`, h.n); err != nil {
			return err
		}
	default:
		if notes = []string{"rebuilt from its events"}; h.floor {
			notes = append(notes, "no events prove what it is")
		}
		if err := s.putInstance(ctx, h); err != nil {
			return err
		}
	}
	missing := h.missing(now.Seq)
	if _, err := s.tx.ExecContext(ctx, `DELETE FROM events WHERE n = ? AND seq > ?`, h.n, now.Seq); err != nil {
		return err
	}
	if err := s.reopenReviews(ctx, h, now); err != nil {
		return err
	}
	snapshots, err := s.foldSnapshots(ctx, h, now.Seq)
	if err != nil {
		return err
	}
	if notes = append(notes, snapshots...); len(notes) == 0 && len(missing) > 0 {
		notes = []string{"its events verify up to each gap"}
	}
	if len(notes) > 0 {
		s.result.Lost = append(s.result.Lost, Loss{Instance: h.id, Ranges: missing, Was: h.was, Is: now.Seq, Why: strings.Join(notes, "; ")})
	}
	return nil
}

// putInstance replaces the rows of an instance by what its events fold to, as the first
// commit of an instance does.
func (s *salvor) putInstance(ctx context.Context, h *salvagedHistory) error {
	last := slices.IndexFunc(h.events, func(e record.Event) bool { return e.Seq == h.folded.Seq })
	p, err := prepareCommit(store.Commit{Next: h.folded, Events: h.events[last : last+1]})
	if err != nil {
		return err
	}
	if _, err := s.tx.ExecContext(ctx, `DELETE FROM instances WHERE n = ?`, h.n); err != nil {
		return err
	}
	if err := p.applyInstance(&s.st); err != nil {
		return err
	}
	for _, query := range []string{
		`UPDATE OR REPLACE contexts SET n = ?1 WHERE n = (SELECT n FROM instances WHERE id = ?2)`,
		`UPDATE instances SET n = ?1 WHERE id = ?2`,
	} {
		if _, err := s.tx.ExecContext(ctx, query, h.n, h.id); err != nil {
			return err
		}
	}
	return nil
}

// foldSnapshots replaces the snapshots of an instance by the fold of its events, drops
// those that no whole history leads to, and says so.
func (s *salvor) foldSnapshots(ctx context.Context, h *salvagedHistory, kept int64) (notes []string, err error) {
	if _, err := s.tx.ExecContext(ctx, `DELETE FROM snapshots WHERE n = ?`, h.n); err != nil {
		return nil, err
	}
	var folded []record.Instance // a later one of the same revision counts
	for _, e := range h.events {
		if state, ok := h.states[e.Seq]; ok && (e.Kind == record.Checkpointed || e.Rollback != nil) {
			folded = append(folded, state)
		}
	}
	for _, snap := range h.snapshots {
		switch state, ok := h.states[snap.Seq]; {
		case ok && state.Revision == snap.Revision:
			folded = append(folded, state)
			if record.DigestState(state) != record.DigestState(snap.Instance) {
				notes = append(notes, fmt.Sprintf("snapshot of revision %d rebuilt", snap.Revision))
			}
		case snap.Seq <= kept:
			notes = append(notes, fmt.Sprintf("snapshot of revision %d dropped", snap.Revision))
		}
	}
	for _, state := range folded {
		doc, err := encodeSnapshot(state)
		if err != nil {
			return nil, err
		}
		if err := s.st.exec(s.st.addSnapshot, state.Revision, doc, orEmpty(state.Context), h.id); err != nil {
			return nil, err
		}
	}
	return notes, nil
}

// reopenReviews makes the rows anew of reviews that an instance waits for and that are lost.
// The data is lost with them, so that no one can approve them: they can be looked at,
// rejected, and asked for again.
func (s *salvor) reopenReviews(ctx context.Context, h *salvagedHistory, now record.Instance) error {
	for _, open := range now.Facts.Reviews {
		known, err := queryAll(ctx, s.tx, scanOne[int], `SELECT 1 FROM reviews WHERE id = ?`, open.ID)
		if err != nil {
			return err
		}
		if len(known) > 0 {
			continue
		}
		r := store.Review{
			ID: open.ID, Action: open.Action, Digest: open.Digest, Seq: open.Seq,
			Status: record.ReviewOpen, Instance: h.id, Priority: record.PriorityNormal,
		}
		for _, e := range h.events {
			if e.Seq != open.Seq || e.Review == nil {
				continue
			}
			r.Workflow, r.Version, r.DefinitionHash = e.Workflow, e.Version, e.DefinitionHash
			r.Principal, r.Role, r.From, r.Revision = e.Principal, e.Role, e.From, e.Revision
			r.Priority, r.ParkedAt, r.ExpiresAt = e.Review.Priority, e.Time, e.Review.ExpiresAt
			if e.Decision != nil {
				r.Target = e.Decision.Target
			}
		}
		row, err := prepareReview(r)
		if err != nil {
			return err
		}
		if err := row.apply(&s.st); err != nil {
			return err
		}
	}
	return nil
}
