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

// mend looks through every instance of the new store: its row must be what its events
// fold to, as far as there are events.
func (s *salvor) mend(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(s.ids.of)) {
		p, err := s.patient(ctx, id)
		if err != nil {
			return err
		}
		if err := s.cure(ctx, p); err != nil {
			return err
		}
	}
	if _, err := s.tx.ExecContext(ctx, `DELETE FROM contexts WHERE n NOT IN (SELECT n FROM instances);
		DELETE FROM snapshots WHERE n NOT IN (SELECT n FROM instances)`); err != nil { // of nobody
		return err
	}
	return s.goOn(ctx)
}

// goOn gives the newest event the position that the newest anchor was written at, if it
// is below: positions that were lost must not be used again, because anchors say by them
// what they cover.
func (s *salvor) goOn(ctx context.Context) error {
	rows, err := s.tx.QueryContext(ctx, `SELECT note FROM anchors`)
	if err != nil {
		return err
	}
	notes, err := scanAll(rows, func(r row) (note string, err error) { return note, r.Scan(&note) })
	if err != nil {
		return err
	}
	var covered int64
	for _, note := range notes {
		text, err := record.ReadNoteText(note)
		if err != nil {
			continue // Verify says what is wrong with it
		}
		if a, err := record.ParseAnchor(text); err == nil && a.Events < mostPositions {
			covered = max(covered, a.Events)
		}
	}
	_, err = s.tx.ExecContext(ctx, `UPDATE events SET pos = ?1 WHERE pos = (SELECT max(pos) FROM events) AND pos < ?1`, covered)
	return err
}

// mostPositions bounds what a note is believed: behind the highest of all numbers there
// would be no position left.
const mostPositions = 1 << 53

// patient is what was saved of one instance.
type patient struct {
	id        string
	n         int64
	row       *record.Instance // nil unless both its row and its context were saved
	was       int64            // the highest event that anything speaks of
	events    []record.Event   // by seq
	snapshots []savedSnapshot
}

// savedSnapshot is a snapshot as it was read.
type savedSnapshot struct {
	record.Instance
	digested bool
}

func (s *salvor) patient(ctx context.Context, id string) (p patient, err error) {
	p = patient{id: id, n: s.ids.of[id]}
	inst, err := scanInstance(s.tx.QueryRowContext(ctx, `SELECT `+instanceColumns+` FROM instances i JOIN contexts c ON c.n = i.n WHERE i.n = ?`, p.n))
	switch {
	case err == nil:
		p.row = &inst
	case !errors.Is(err, sql.ErrNoRows) && !errors.Is(err, ErrCorrupt):
		return p, err
	}
	var seq sql.NullInt64
	if err := s.tx.QueryRowContext(ctx, `SELECT max(seq) FROM instances WHERE n = ?`, p.n).Scan(&seq); err != nil {
		return p, err
	}
	p.was = seq.Int64
	rows, err := s.tx.QueryContext(ctx, `SELECT `+eventColumns+` FROM events e WHERE e.n = ? ORDER BY e.seq`, p.n)
	if err != nil {
		return p, err
	}
	if p.events, err = scanAll(rows, scanEvent); err != nil {
		return p, err
	}
	if p.events, err = s.unremoved(ctx, p); err != nil {
		return p, err
	}
	if n := len(p.events); n > 0 {
		p.was = max(p.was, p.events[n-1].Seq)
	}
	if rows, err = s.tx.QueryContext(ctx, `SELECT instance, context FROM snapshots WHERE n = ? ORDER BY revision`, p.n); err != nil {
		return p, err
	}
	p.snapshots, err = scanAll(rows, func(r row) (s savedSnapshot, err error) {
		var doc, held []byte
		if err := r.Scan(&doc, &held); err != nil {
			return s, err
		}
		s.Instance, s.digested, err = decodeSnapshot(doc, held)
		return s, err
	})
	return p, err
}

// unremoved takes out what was removed on purpose, and came up again from a page that
// was not written since.
func (s *salvor) unremoved(ctx context.Context, p patient) ([]record.Event, error) {
	last := p.removed()
	at := slices.IndexFunc(p.events, func(e record.Event) bool { return e.Seq > last })
	if at <= 0 {
		return p.events, nil
	}
	_, err := s.tx.ExecContext(ctx, `DELETE FROM events WHERE n = ? AND seq <= ?`, p.n, last)
	return p.events[at:], err
}

// follows reports whether an event is the one after another.
func follows(e, before record.Event) bool { return e.Seq == before.Seq+1 && e.PrevHash == before.Hash }

// removed is how many events at the beginning were removed on purpose.
func (p patient) removed() int64 {
	for _, e := range slices.Backward(p.events) {
		if e.Truncation != nil {
			return e.Truncation.UpTo
		}
	}
	return 0
}

// missing are the events that are lost, up to the last that anything speaks of.
func (p patient) missing() []Range {
	var out []Range
	next := p.removed() + 1
	for i, e := range p.events {
		switch {
		case e.Seq > next:
			out = append(out, Range{next, e.Seq - 1})
		case i > 0 && e.Seq == next && !follows(e, p.events[i-1]): // another event stood here
			out = append(out, Range{e.Seq - 1, e.Seq - 1})
		}
		next = max(next, e.Seq+1)
	}
	n := len(p.events)
	if p.row != nil && p.row.Seq >= next && (n == 0 || p.events[n-1].Hash != p.row.Head) {
		out = append(out, Range{next, p.row.Seq})
	}
	return out
}

// folded is the furthest that the events lead: from the start, or from a snapshot that
// they follow. Only from the start is it proven: a snapshot is vouched for by nothing but
// what it says of itself. The zero Instance means nowhere.
func (p patient) folded() (best record.Instance, proven bool) {
	best, proven = p.foldFrom(record.Instance{}, nil), true
	for _, s := range p.snapshots {
		if s.ID != p.id || s.Seq <= best.Seq {
			continue
		}
		if end := p.foldFrom(s.Instance, nil); end.Seq > best.Seq {
			best, proven = end, false
		}
	}
	return best, proven
}

// foldFrom folds the events that follow base, until one is missing or does not fit. A
// base that no event vouches for leads nowhere. It calls each, if there is one, with every
// event and what it leads to.
func (p patient) foldFrom(base record.Instance, each func(record.Event, record.Instance)) record.Instance {
	at := base
	vouched := slices.ContainsFunc(p.events, func(e record.Event) bool { return e.Seq == base.Seq && e.Hash == base.Head })
	kept := map[int64]record.Instance{base.Revision: base}
	for _, e := range p.events {
		if e.Seq <= at.Seq {
			continue
		}
		if e.Seq != at.Seq+1 || e.PrevHash != at.Head {
			break
		}
		next, err := record.Fold(at, e, func(revision int64) (record.Instance, error) {
			if then, ok := kept[revision]; ok && revision > 0 {
				return then, nil
			}
			return record.Instance{}, record.ErrNoRevision
		})
		if err != nil {
			break
		}
		at, vouched = next, true
		kept[at.Revision] = at
		if each != nil {
			each(e, at)
		}
	}
	if !vouched {
		return record.Instance{}
	}
	return at
}

// cure makes the row of an instance what its events say.
func (s *salvor) cure(ctx context.Context, p patient) error {
	found := DamagedInstance{ID: p.id, Missing: p.missing(), Was: p.was}
	folded, proven := p.folded()
	now := folded
	switch {
	case p.row == nil:
		found.Rebuilt, found.Unproven = folded.Seq > 0, !proven
	case sameInstance(folded, *p.row):
	case folded.Seq > p.row.Seq, proven && folded.Head == p.row.Head:
		found.Rebuilt, found.Unproven = true, !proven
	default: // it is further than its events lead, or they lead to something else
		now, found.Unproven = *p.row, true
	}
	found.Is = now.Seq
	if found.Rebuilt {
		if err := s.write(ctx, p.n, now); err != nil {
			return err
		}
	}
	if err := s.setAside(ctx, p, now.Seq, &found); err != nil {
		return err
	}
	if err := s.reopen(ctx, p, now); err != nil {
		return err
	}
	if err := s.refold(ctx, p, now.Seq, &found); err != nil {
		return err
	}
	if len(found.Missing) > 0 || found.Rebuilt || len(found.Refolded) > 0 || len(found.Dropped) > 0 || found.Unproven || found.LeftOver > 0 || found.Is == 0 {
		s.result.Instances = append(s.result.Instances, found)
	}
	return nil
}

func sameInstance(a, b record.Instance) bool {
	one, err := json.Marshal(a)
	if err != nil {
		return false
	}
	two, err := json.Marshal(b)
	return err == nil && string(one) == string(two)
}

// write puts an instance's row and context in place.
func (s *salvor) write(ctx context.Context, n int64, i record.Instance) error {
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

// setAside takes out what comes after the event at which the instance is now: another
// event will have its number.
func (s *salvor) setAside(ctx context.Context, p patient, is int64, found *DamagedInstance) error {
	for _, e := range p.events {
		if e.Seq <= is {
			continue
		}
		found.LeftOver++
		if err := s.leftOver.add(e); err != nil {
			return err
		}
	}
	if found.LeftOver > 0 {
		if _, err := s.tx.ExecContext(ctx, `DELETE FROM events WHERE n = ? AND seq > ?`, p.n, is); err != nil {
			return err
		}
	}
	for _, snapshot := range p.snapshots {
		if snapshot.Seq > is {
			if _, err := s.tx.ExecContext(ctx, `DELETE FROM snapshots WHERE n = ? AND revision = ?`, p.n, snapshot.Revision); err != nil {
				return err
			}
		}
	}
	if is > 0 {
		return nil
	}
	_, err := s.tx.ExecContext(ctx, `DELETE FROM instances WHERE n = ?`, p.n)
	return err
}

// reopen makes the rows of reviews anew that an instance waits for and that are lost.
// What was asked for is lost with them, so that nobody can approve them: they can be
// looked at, rejected, and asked for again.
func (s *salvor) reopen(ctx context.Context, p patient, now record.Instance) error {
	for _, open := range now.Facts.Reviews {
		var one int
		err := s.tx.QueryRowContext(ctx, `SELECT 1 FROM reviews WHERE id = ?`, open.ID).Scan(&one)
		if err == nil {
			continue
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		row, err := prepareReview(openedBy(p, store.Review{ID: open.ID, Action: open.Action, Digest: open.Digest, Seq: open.Seq}))
		if err != nil {
			return err
		}
		var data any // NULL: see above
		if _, err := s.tx.ExecContext(ctx, `INSERT INTO reviews (id, place, status, instance, workflow, principal, body, data)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, row.id, placeOf(row.Priority.Rank()), string(row.Status), row.Instance, row.Workflow,
			row.Principal, row.body, data); err != nil {
			return err
		}
	}
	return nil
}

// openedBy is a review as the event says that opened it.
func openedBy(p patient, row store.Review) store.Review {
	row.Status, row.Instance, row.Priority = record.ReviewOpen, p.id, record.PriorityNormal
	at := slices.IndexFunc(p.events, func(e record.Event) bool { return e.Seq == row.Seq && e.Review != nil })
	if at < 0 {
		return row
	}
	e := p.events[at]
	row.Workflow, row.Version, row.DefinitionHash = e.Workflow, e.Version, e.DefinitionHash
	row.Principal, row.Role, row.From, row.Revision = e.Principal, e.Role, e.From, e.Revision
	row.Priority, row.ParkedAt, row.ExpiresAt = e.Review.Priority, e.Time, e.Review.ExpiresAt
	if e.Decision != nil {
		row.Target = e.Decision.Target
	}
	return row
}
