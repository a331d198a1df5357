package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
)

// checkInstances makes every instance what its events fold to, up to the first gap. One whose
// row leads further stays as it is.
func (s *salvor) checkInstances(ctx context.Context) error {
	numbers, err := queryAll(ctx, s, scanOne[int64], `SELECT n FROM instances UNION SELECT n FROM events`)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if err := s.checkInstance(ctx, n); err != nil {
			return err
		}
	}
	return errors.Join(s.exec(ctx, `DELETE FROM contexts WHERE n NOT IN (SELECT n FROM instances)`),
		s.exec(ctx, `DELETE FROM snapshots WHERE n NOT IN (SELECT n FROM instances)`))
}

func (s *salvor) checkInstance(ctx context.Context, n int64) error {
	row, err := scanInstance(s.QueryRowContext(ctx, `SELECT `+instanceColumns+` FROM instances i LEFT JOIN contexts c ON c.n = i.n WHERE i.n = ?`, n))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	events, err := queryAll(ctx, s, scanEvent, `SELECT `+eventColumns+` FROM events e WHERE e.n = ? ORDER BY e.seq`, n)
	if err != nil {
		return err
	}
	floor, err := s.floor(ctx, n)
	if err != nil {
		return err
	}
	// What was removed on purpose does not come back from a page that was not overwritten.
	if err := s.exec(ctx, `DELETE FROM events WHERE n = ? AND seq <= ?`, n, floor.Seq); err != nil {
		return err
	}
	events = slices.DeleteFunc(events, func(e record.Event) bool { return e.Seq <= floor.Seq })
	now, lost := foldUpToGap(floor, events), Loss{Instance: row.ID, Was: row.Seq}
	if len(events) > 0 {
		last := events[len(events)-1]
		lost.Instance, lost.Was = last.Instance, max(lost.Was, last.Seq)
	}
	switch {
	case len(row.Context) > 0 && row.Seq > now.Seq:
		now, lost.Why = row, "no events prove what it is"
	case now.Seq == 0:
		lost.Why = "could not be rebuilt"
		err = s.exec(ctx, `DELETE FROM instances WHERE n = ?`, n)
	case record.DigestState(now) != record.DigestState(row):
		lost.Why = "rebuilt from its events"
		err = s.replaceInstance(ctx, n, now)
	}
	if lost.Was > now.Seq { // another event may come in the place of one that follows a gap
		lost.Why = cmp.Or(lost.Why, "its last events do not follow")
		err = errors.Join(err, s.exec(ctx, `DELETE FROM events WHERE n = ? AND seq > ?`, n, now.Seq),
			s.exec(ctx, `DELETE FROM snapshots WHERE n = ? AND revision >= ?`, n, now.Revision))
	}
	for _, open := range now.Facts.Reviews {
		known, findErr := queryAll(ctx, s, scanOne[int], `SELECT 1 FROM reviews WHERE id = ?`, open.ID)
		if err = errors.Join(err, findErr); len(known) == 0 {
			lost.Why = strings.TrimPrefix(lost.Why+"; review "+open.ID+" is lost", "; ")
		}
	}
	if lost.Why != "" {
		lost.Is, lost.Ranges = now.Seq, listGaps(events, Range{floor.Seq + 1, lost.Was}, now.Seq)
		s.lost = append(s.lost, lost)
	}
	return err
}

// listGaps lists the events that are missing in a range, where none above the event last was kept.
func listGaps(events []record.Event, in Range, last int64) (gaps []Range) {
	for _, e := range events {
		if e.Seq > last {
			break
		}
		if e.Seq > in.From {
			gaps = append(gaps, Range{in.From, e.Seq - 1})
		}
		in.From = e.Seq + 1
	}
	if in.From <= in.To {
		gaps = append(gaps, in)
	}
	return gaps
}

func (s *salvor) replaceInstance(ctx context.Context, n int64, i record.Instance) error {
	head, err := hex.DecodeString(i.Head)
	facts, jsonErr := json.Marshal(i.Facts)
	if err := errors.Join(err, jsonErr); err != nil {
		return err
	}
	return errors.Join(s.exec(ctx, `INSERT OR REPLACE INTO instances (n, id, workflow, version, definition_hash, owner, created_at,
		updated_at, seq, revision, state, status, head, facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, n, i.ID, i.Workflow, i.Version,
		i.DefinitionHash, i.Owner, i.CreatedAt.UnixNano(), i.UpdatedAt.UnixNano(), i.Seq, i.Revision, i.State, string(i.Status), head, facts),
		s.exec(ctx, `INSERT OR REPLACE INTO contexts (n, context) VALUES (?, ?)`, n, orEmpty(i.Context)))
}

// foldUpToGap folds a history as far as it has no gap. It is the zero Instance where there is no beginning.
func foldUpToGap(floor record.Instance, events []record.Event) record.Instance {
	chain, whole := record.NewChainFrom(floor), 0
	for whole < len(events) && chain.Add(events[whole]) == nil {
		whole++
	}
	if whole == 0 {
		return record.Instance{}
	}
	now, err := record.FoldFrom(floor, func(yield func(record.Event, error) bool) {
		for _, e := range events[:whole] {
			if !yield(e, nil) {
				return
			}
		}
	}, 0)
	if err != nil { // it goes back to before the floor
		return record.Instance{}
	}
	return now
}
