package postgres

import (
	"context"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// block is a block of positions.
type block struct {
	number, first, last int64 // first and last are the earliest and latest time of its events
	removed             int64
	figures             []byte
}

func scanBlock(r pgx.Row) (b block, err error) {
	err = r.Scan(&b.number, &b.first, &b.last, &b.removed, &b.figures)
	return b, err //nolint:wrapcheck // read wraps it
}

// blocksPage is the page size for blocks, whose figures can be large.
const blocksPage = 16

// Figures implements store.Store. A full block is counted only once, by the first query that needs it.
func (s *Store) Figures(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.Figures, error] {
	q.Limit = 0
	whole := store.DecisionQuery{Workflow: q.Workflow, Owner: q.Owner}
	if q.Empty() || q.Before != 0 || q.Instance != "" || len(q.Terms()) != len(whole.Terms()) {
		return store.CountDecisions(s.Decisions(ctx, q)) // blocks are not counted by these fields
	}
	return func(yield func(store.Figures, error) bool) {
		end, err := s.LastPosition(ctx)
		if err != nil {
			yield(store.Figures{}, err)
			return
		}
		for b, err := range s.blocks(ctx, q, end) {
			if err != nil {
				yield(store.Figures{}, err)
				return
			}
			t, err := s.countBlock(ctx, q, b, end)
			if err != nil {
				yield(store.Figures{}, fmt.Errorf("count decisions: %w", err))
				return
			}
			for of, f := range t {
				if (q.Workflow == "" || q.Workflow == of.Workflow) && (q.Owner == "" || q.Owner == of.Owner) && !yield(*f, nil) {
					return
				}
			}
			if q.OnScan != nil && !q.OnScan(b.number<<blockBits) {
				return
			}
		}
	}
}

// blocks lists the blocks that a query covers, newest first.
func (s *Store) blocks(ctx context.Context, q store.DecisionQuery, end int64) iter.Seq2[block, error] {
	return rows.Pages(ctx, 0, blocksPage, func(ctx context.Context, after *block, n int) (page []block, err error) {
		var w where
		w.addTimes(q, "last", "first")
		w.add("block <= %", end>>blockBits)
		if after != nil {
			w.add("block < %", after.number)
		}
		err = s.read(ctx, "blocks of decisions", func(ctx context.Context, on handle) (err error) {
			page, err = queryAll(ctx, on, scanBlock, s.sql(`SELECT block, first, last, coalesce(removed, 0), body
				FROM gavel.blocks LEFT JOIN gavel.figures USING (block)`+w.String()+` ORDER BY block DESC LIMIT `+w.value(n)), w.args...)
			return err
		})
		return page, err
	})
}

// countBlock counts the decisions of a block, up to position end, where the log ends. It stores the figures of a full
// block, for all queries.
func (s *Store) countBlock(ctx context.Context, q store.DecisionQuery, b block, end int64) (store.Tally, error) {
	t := store.Tally{}
	inside := (q.Since.IsZero() || b.first >= rows.NanosOf(q.Since)) && (q.Until.IsZero() || b.last < rows.NanosOf(q.Until))
	if inside && rows.AddFigures(t, b.figures) {
		return t, nil
	}
	above := b.number<<blockBits - 1
	full := above+1<<blockBits <= end
	matches := q.Matcher()
	if inside && full {
		matches = store.DecisionQuery{}.Matcher()
	}
	events := find(0, headsPage, above, func(above int64, n int) (page []store.PlacedEvent, err error) {
		err = s.read(ctx, "decisions of a block", func(ctx context.Context, on handle) (err error) {
			page, err = search{above: above, below: min((b.number+1)<<blockBits, end+1)}.page(ctx, s, on, n)
			return err
		})
		return page, err
	}, func(p store.PlacedEvent) bool { return matches(p.Event, p.Owner) }, nil)
	for p, err := range events {
		if err != nil {
			return nil, err
		}
		t.Add(store.FiguresOf(p.Event, p.Owner))
	}
	if !inside || !full {
		return t, nil
	}
	body, err := rows.EncodeFigures(t)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error is already specific
	}
	err = s.transact(ctx, "keep figures", func(ctx context.Context, tx pgx.Tx) error {
		// The figures are not stored if events have been removed since the block was listed.
		_, err := tx.Exec(ctx, s.sql(`INSERT INTO gavel.figures (block, removed, body) VALUES ($1, $2, $3)
			ON CONFLICT (block) DO UPDATE SET body = excluded.body WHERE figures.removed = excluded.removed`), b.number, b.removed, body)
		return err //nolint:wrapcheck // transact wraps it
	})
	if err != nil { // the next query counts again
		s.log.Debug("figures were not kept", "cause", err)
	}
	return t, nil
}
