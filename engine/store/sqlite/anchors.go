package sqlite

import (
	"context"
	"fmt"
	"iter"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// AddAnchor implements store.Store.
func (s *Store) AddAnchor(ctx context.Context, a store.Anchor) error {
	refused := fmt.Errorf("%w: anchor %d is not the next, or a history has been shortened since", store.ErrConflict, a.Number)
	return s.write(ctx, len(a.Note)+len(a.Heads), "add an anchor", func(st *statements) error {
		if err := st.checkLease(a.Lease); err != nil {
			return err
		}
		return st.execOne(refused, st.addAnchor, a.Number, a.At.UnixNano(), a.Note, rows.OrEmpty(a.Heads), a.Seen, string(record.Truncated))
	})
}

const anchorColumns = `number, at, note, heads`

func scanAnchor(r row) (store.Anchor, error) {
	var a store.Anchor
	var at int64
	if err := r.Scan(&a.Number, &at, &a.Note, &a.Heads); err != nil {
		return store.Anchor{}, err
	}
	a.At = rows.TimeOf(at)
	return a, nil
}

// Anchors implements store.Store.
func (s *Store) Anchors(ctx context.Context, after int64) iter.Seq2[store.Anchor, error] {
	query := `SELECT ` + anchorColumns + ` FROM anchors WHERE number > ? ORDER BY number LIMIT ?`
	limit := 0
	if after == store.LastAnchor {
		query, limit = `SELECT `+anchorColumns+` FROM anchors WHERE number > ? ORDER BY number DESC LIMIT ?`, 1
	}
	return rows.Pages(ctx, limit, 1, func(ctx context.Context, last *store.Anchor, n int) (page []store.Anchor, err error) { // heads can be large
		from := after
		if last != nil {
			from = last.Number
		}
		err = s.read(ctx, "anchors", func(ctx context.Context) (err error) {
			page, err = queryAll(ctx, s.poolFor(ctx), scanAnchor, query, from, n)
			return err
		})
		return page, err
	})
}

// LastPosition implements store.Store.
func (s *Store) LastPosition(ctx context.Context) (n int64, err error) {
	err = s.read(ctx, "the last position", func(ctx context.Context) error {
		return s.poolFor(ctx).QueryRowContext(ctx, `SELECT coalesce(max(pos), 0) FROM events`).Scan(&n)
	})
	return n, err
}
