package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// checkInstances makes every instance of the new store what its events fold to, as far as
// there are events.
func (s *salvor) checkInstances(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(s.instances)) {
		h, err := s.loadHistory(ctx, id)
		if err != nil {
			return err
		}
		if err := s.checkInstance(ctx, h); err != nil {
			return err
		}
	}
	_, err := s.tx.ExecContext(ctx, `DELETE FROM contexts WHERE n NOT IN (SELECT n FROM instances);
		DELETE FROM snapshots WHERE n NOT IN (SELECT n FROM instances)`)
	return err
}

// salvagedHistory is what was saved of one instance.
type salvagedHistory struct {
	id        string
	n         int64
	row       *record.Instance // nil unless its row and its context were saved
	was       int64            // the last event that is known of
	events    []record.Event   // by seq
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
	h := &salvagedHistory{id: id, n: s.instances[id]}
	inst, err := scanInstance(s.tx.QueryRowContext(ctx, `SELECT `+instanceColumns+` FROM instances i JOIN contexts c ON c.n = i.n WHERE i.n = ?`, h.n))
	switch {
	case err == nil && isInstance(inst):
		h.row, h.was = &inst, inst.Seq
	case err != nil && !errors.Is(err, sql.ErrNoRows) && !errors.Is(err, ErrCorrupt):
		return nil, err
	default:
		var seq sql.NullInt64
		if err := s.tx.QueryRowContext(ctx, `SELECT max(seq) FROM instances WHERE n = ?`, h.n).Scan(&seq); err != nil {
			return nil, err
		}
		h.was = seq.Int64
	}
	if h.events, err = queryAll(ctx, s.tx, scanEvent, `SELECT `+eventColumns+` FROM events e WHERE e.n = ? ORDER BY e.seq`, h.n); err != nil {
		return nil, err
	}
	if last := len(h.events) - 1; last >= 0 {
		h.was = max(h.was, h.events[last].Seq)
	}
	h.snapshots, err = queryAll(ctx, s.tx, func(r row) (snap salvagedSnapshot, err error) {
		var doc, held []byte
		if err := r.Scan(&doc, &held); err != nil {
			return snap, err
		}
		snap.Instance, snap.digested, err = decodeSnapshot(doc, held)
		return snap, err
	}, `SELECT instance, context FROM snapshots WHERE n = ? ORDER BY revision`, h.n)
	if err != nil {
		return nil, err
	}
	h.fold()
	return h, nil
}

// isInstance reports whether a row can be one.
func isInstance(i record.Instance) bool {
	return i.ID != "" && i.Workflow != "" && i.State != "" && i.Version > 0 && i.Seq > 0 && i.Revision > 0 && len(i.Head) == 64 &&
		(i.Status == record.Running || i.Status == record.Complete || i.Status == record.Cancelled)
}

// truncation is what was removed from the beginning on purpose, if anything.
func (h *salvagedHistory) truncation() record.Truncation {
	for _, e := range slices.Backward(h.events) {
		if e.Truncation != nil {
			return *e.Truncation
		}
	}
	return record.Truncation{}
}

// fold folds the events up to the first gap. It begins at the first event, or at the snapshot
// that stands for the removed ones.
func (h *salvagedHistory) fold() {
	h.states = map[int64]record.Instance{}
	revisions := map[int64]record.Instance{}
	if cut := h.truncation(); cut.UpTo > 0 {
		for _, snap := range h.snapshots {
			if snap.ID == h.id && snap.Seq == cut.UpTo && snap.Head == cut.Hash && (cut.Floor == "" && snap.digested || cut.Floor == record.DigestState(snap.Instance)) {
				h.folded, h.floor = snap.Instance, true
				h.states[snap.Seq], revisions[snap.Revision] = snap.Instance, snap.Instance
			}
		}
	}
	for _, e := range h.events {
		if e.Seq <= h.folded.Seq {
			continue
		}
		if e.Seq != h.folded.Seq+1 || e.PrevHash != h.folded.Head {
			break
		}
		next, err := record.Fold(h.folded, e, func(revision int64) (record.Instance, error) {
			if then, ok := revisions[revision]; ok {
				return then, nil
			}
			return record.Instance{}, record.ErrNoRevision
		})
		if err != nil {
			break
		}
		h.folded, h.states[next.Seq], revisions[next.Revision] = next, next, next
	}
	if h.floor && len(h.states) == 1 {
		h.folded, h.floor = record.Instance{}, false // no event bears the snapshot out
	}
}

// missing are the events that are lost, up to the last one that is known of. Those behind
// the event kept are not saved.
func (h *salvagedHistory) missing(kept int64) (out []Range) {
	next := h.truncation().UpTo + 1
	before := ""
	for _, e := range h.events {
		switch {
		case e.Seq < next || e.Seq > kept:
			continue
		case e.Seq > next:
			out = append(out, Range{next, e.Seq - 1})
		case before != "" && e.PrevHash != before: // another event was in its place
			out = append(out, Range{e.Seq - 1, e.Seq - 1})
		}
		next, before = e.Seq+1, e.Hash
	}
	if h.was >= next {
		out = append(out, Range{next, h.was})
	}
	return out
}

// checkInstance makes the rows of an instance what its events fold to.
func (s *salvor) checkInstance(ctx context.Context, h *salvagedHistory) error {
	now, found := h.folded, DamagedInstance{ID: h.id, Was: h.was}
	switch {
	case h.row != nil && record.DigestState(h.folded) == record.DigestState(*h.row):
	case h.row != nil && h.row.Seq > h.folded.Seq: // it is further than its events lead
		now, found.Unproven = *h.row, true
	case h.folded.Seq > 0:
		found.Rebuilt, found.Unproven = true, h.floor
		if err := s.putInstance(ctx, h.n, now); err != nil {
			return err
		}
	}
	found.Is, found.Missing = now.Seq, h.missing(now.Seq)
	if _, err := s.tx.ExecContext(ctx, `DELETE FROM events WHERE n = ? AND seq > ?`, h.n, now.Seq); err != nil {
		return err
	}
	if now.Seq == 0 {
		if _, err := s.tx.ExecContext(ctx, `DELETE FROM instances WHERE n = ?`, h.n); err != nil {
			return err
		}
	}
	if err := s.reopenReviews(ctx, h, now); err != nil {
		return err
	}
	if err := s.foldSnapshots(ctx, h, now.Seq, &found); err != nil {
		return err
	}
	if len(found.Missing)+len(found.Refolded)+len(found.Dropped) > 0 || found.Rebuilt || found.Unproven || found.Is == 0 {
		s.result.Instances = append(s.result.Instances, found)
	}
	return nil
}

func (s *salvor) putInstance(ctx context.Context, n int64, i record.Instance) error {
	facts, err := json.Marshal(i.Facts)
	if err != nil {
		return err
	}
	head, err := hex.DecodeString(i.Head)
	if err != nil {
		return err
	}
	if _, err := s.tx.ExecContext(ctx, `INSERT OR REPLACE INTO instances (n, id, workflow, version, definition_hash, owner, created_at,
		updated_at, seq, revision, state, status, head, facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		n, i.ID, i.Workflow, i.Version, i.DefinitionHash, i.Owner, i.CreatedAt.UnixNano(),
		i.UpdatedAt.UnixNano(), i.Seq, i.Revision, i.State, string(i.Status), head, facts); err != nil {
		return err
	}
	_, err = s.tx.ExecContext(ctx, `INSERT OR REPLACE INTO contexts (n, context) VALUES (?, ?)`, n, orEmpty(i.Context))
	return err
}

// foldSnapshots replaces the snapshots of an instance by the fold of its events, and drops
// those that no whole history leads to.
func (s *salvor) foldSnapshots(ctx context.Context, h *salvagedHistory, kept int64, found *DamagedInstance) error {
	lost := slices.ContainsFunc(s.result.Tables, func(t DamagedTable) bool { return t.Name == "snapshots" })
	states, read := map[int64]record.Instance{}, map[int64]bool{} // by revision
	for _, e := range h.events {
		if state, ok := h.states[e.Seq]; ok && (e.Kind == record.Checkpointed || e.Rollback != nil) {
			states[state.Revision] = state
		}
	}
	for _, snap := range h.snapshots {
		read[snap.Revision] = true
		switch state, ok := h.states[snap.Seq]; {
		case ok && state.Revision == snap.Revision:
			states[snap.Revision] = state
			if record.DigestState(state) != record.DigestState(snap.Instance) {
				found.Refolded = append(found.Refolded, snap.Revision)
			}
		case snap.Seq <= kept:
			found.Dropped = append(found.Dropped, snap.Revision)
		}
	}
	if _, err := s.tx.ExecContext(ctx, `DELETE FROM snapshots WHERE n = ?`, h.n); err != nil {
		return err
	}
	for _, revision := range slices.Sorted(maps.Keys(states)) {
		if lost && !read[revision] {
			found.Refolded = append(found.Refolded, revision)
		}
		doc, err := encodeSnapshot(states[revision])
		if err != nil {
			return err
		}
		if err := s.st.exec(s.st.addSnapshot, revision, doc, orEmpty(states[revision].Context), h.id); err != nil {
			return err
		}
	}
	return nil
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
		row, err := prepareReview(h.openedReview(store.Review{ID: open.ID, Action: open.Action, Digest: open.Digest, Seq: open.Seq}))
		if err != nil {
			return err
		}
		if err := row.apply(&s.st); err != nil {
			return err
		}
	}
	return nil
}

// openedReview is a review as the event says that opened it.
func (h *salvagedHistory) openedReview(row store.Review) store.Review {
	row.Status, row.Instance, row.Priority = record.ReviewOpen, h.id, record.PriorityNormal
	for _, e := range h.events {
		if e.Seq != row.Seq || e.Review == nil {
			continue
		}
		row.Workflow, row.Version, row.DefinitionHash = e.Workflow, e.Version, e.DefinitionHash
		row.Principal, row.Role, row.From, row.Revision = e.Principal, e.Role, e.From, e.Revision
		row.Priority, row.ParkedAt, row.ExpiresAt = e.Review.Priority, e.Time, e.Review.ExpiresAt
		if e.Decision != nil {
			row.Target = e.Decision.Target
		}
	}
	return row
}

// maxPosition bounds what an anchor is believed: above the greatest number no event could
// be added.
const maxPosition = 1 << 53

// skipPositions gives the newest event the position of the newest anchor, if it is below:
// anchors say by positions what they cover, so those of lost events must not be used again.
func (s *salvor) skipPositions(ctx context.Context) error {
	notes, err := queryAll(ctx, s.tx, scanOne[string], `SELECT note FROM anchors`)
	if err != nil {
		return err
	}
	var covered int64
	for _, note := range notes {
		text, err := record.ReadNoteText(note)
		if err != nil {
			continue // verifying says what is wrong with it
		}
		if a, err := record.ParseAnchor(text); err == nil && a.Events < maxPosition {
			covered = max(covered, a.Events)
		}
	}
	_, err = s.tx.ExecContext(ctx, `UPDATE events SET pos = ?1 WHERE pos = (SELECT max(pos) FROM events) AND pos < ?1`, covered)
	return err
}
