package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// blocksPage is the page size for blocks, whose figures can be large.
const blocksPage = 16

// block is a row of decision_times. It has no number if there are no rows.
type block struct {
	reached     int64 // indexed up to this position when the row was read
	number      sql.NullInt64
	first, last sql.NullInt64
	figures     []byte
}

func scanBlock(r row) (b block, err error) {
	err = r.Scan(&b.reached, &b.number, &b.first, &b.last, &b.figures)
	return b, err
}

// span returns the indexed positions of the block.
func (b block) span() span {
	return span{b.number.Int64 << blockBits, (b.number.Int64 + 1) << blockBits}.below(b.reached + 1)
}

// Figures implements store.Store. It uses the figures of the index and counts the remaining decisions itself.
func (s *Store) Figures(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.Figures, error] {
	q.Limit = 0
	whole := store.DecisionQuery{Workflow: q.Workflow, Owner: q.Owner, Since: q.Since, Until: q.Until}
	if q.Empty() || q.Before != 0 || q.Instance != "" || len(q.Terms()) != len(whole.Terms()) {
		return store.CountDecisions(s.Decisions(ctx, q)) // the index does not count by these fields
	}
	return func(yield func(store.Figures, error) bool) {
		_, err := s.updateIndex(ctx)
		if err != nil {
			yield(store.Figures{}, err)
			return
		}
		matches := q.Matcher()
		count := func(within span) bool {
			return s.searchPages(ctx, q, within, pageByPosition, func(p scannedEvent, err error) bool {
				if err != nil {
					yield(store.Figures{}, fmt.Errorf("count decisions: %w", err))
					return false
				}
				return !matches(p.Event, p.Owner) || yield(store.FiguresOf(p.Event, p.Owner), nil)
			})
		}
		first := true
		for b, err := range s.blocks(ctx) {
			if err != nil {
				yield(store.Figures{}, err)
				return
			}
			if first && !count(span{b.reached + 1, math.MaxInt64}) {
				return
			}
			first = false
			if !b.number.Valid || !q.Since.IsZero() && b.last.Int64 < rows.NanosOf(q.Since) || !q.Until.IsZero() && b.first.Int64 >= rows.NanosOf(q.Until) {
				continue
			}
			t := store.Tally{}
			inside := (q.Since.IsZero() || b.first.Int64 >= rows.NanosOf(q.Since)) && (q.Until.IsZero() || b.last.Int64 < rows.NanosOf(q.Until))
			if !inside || !rows.AddFigures(t, b.figures) {
				if !count(b.span()) {
					return
				}
				continue
			}
			for key, f := range t {
				if (q.Workflow == "" || q.Workflow == key.Workflow) && (q.Owner == "" || q.Owner == key.Owner) && !yield(*f, nil) {
					return
				}
			}
			if q.OnScan != nil && !q.OnScan(b.span().from) {
				return
			}
		}
	}
}

// blocks lists the indexed blocks, newest first. If there are none, it yields a block without a number. The figures
// include everything up to the position reached in the first block.
func (s *Store) blocks(ctx context.Context) iter.Seq2[block, error] {
	return rows.Pages(ctx, 0, blocksPage, func(ctx context.Context, after *block, n int) (page []block, err error) {
		below := int64(math.MaxInt64)
		if after != nil {
			below = after.number.Int64
		}
		err = s.read(ctx, "figures of decisions", func(ctx context.Context) (err error) {
			const query = `SELECT d.pos, t.block, t.first, t.last, t.figures FROM decision_index d
				LEFT JOIN decision_times t ON t.block < ? ORDER BY t.block DESC LIMIT ?`
			page, err = queryAll(ctx, s.poolFor(ctx), scanBlock, query, below, n)
			return err
		})
		return page, err
	})
}

// countBlock returns a step that counts the newest uncounted block, up to the indexed position; nil if every block is
// counted.
func (s *Store) countBlock(ctx context.Context, reached int64) (*indexStep, error) {
	b := block{reached: reached}
	err := s.read(ctx, "blocks that are not counted", func(ctx context.Context) error {
		const query = `SELECT block FROM decision_times WHERE figures IS NULL ORDER BY block DESC LIMIT 1`
		return s.poolFor(ctx).QueryRowContext(ctx, query).Scan(&b.number)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil //nolint:nilnil // there is nothing to do
	case err != nil:
		return nil, err
	}
	t, events, within := store.Tally{}, 0, b.span()
	for p, err := range s.EventsAfter(ctx, store.TailQuery{After: within.from - 1, UpTo: within.to - 1}) {
		if err != nil {
			return nil, err
		}
		events++
		if p.Event.Decision != nil {
			t.Add(store.FiguresOf(p.Event, p.Owner))
		}
	}
	figures, err := rows.EncodeFigures(t)
	overtaken := fmt.Errorf("%w: the block has changed since it was counted", store.ErrConflict)
	return &indexStep{len(figures), func(st *statements) error {
		return st.execOne(overtaken, st.setFigures, figures, b.number.Int64, events, within.from, within.to, reached)
	}}, err
}
