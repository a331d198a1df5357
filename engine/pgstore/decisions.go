package pgstore

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// placedColumns are an event's with its place, and owner and version of its instance.
const placedColumns = `e.pos, i.owner, i.version, ` + eventColumns + ` FROM gavel.events e JOIN gavel.instances i USING (n)`

func scanPlaced(r pgx.Row) (p store.PlacedEvent, err error) {
	var owner []byte
	p.Event, err = scanEvent(r, &p.Position, &owner, &p.Version)
	if err != nil && p.Position != 0 {
		return p, asDamage(fmt.Errorf("the event at position %d: %w", p.Position, err))
	}
	p.Owner = string(owner)
	return p, err
}

// Decisions implements store.Store.
func (s *Store) Decisions(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		if q.Empty() {
			return
		}
		given, matches, before := 0, q.Matcher(), int64(math.MaxInt64)
		if q.Before > 0 {
			before = q.Before
		}
		n := pageSize
		if q.Limit > 0 {
			n = min(n, q.Limit)
		}
		for {
			page, err := s.decisionsPage(ctx, q, before, n)
			if err != nil {
				yield(store.PlacedEvent{}, fmt.Errorf("find decisions: %w", err))
				return
			}
			for _, p := range page {
				if !matches(p.Event, p.Owner) {
					continue
				}
				if given++; !yield(p, nil) || given == q.Limit {
					return
				}
			}
			if len(page) < n {
				return
			}
			before, n = page[len(page)-1].Position, pageSize // what was found does not all match
			if q.Looked != nil && !q.Looked(before) {
				return
			}
		}
	}
}

// decisionsPage are the newest events below a position that may match.
func (s *Store) decisionsPage(ctx context.Context, q store.DecisionQuery, before int64, n int) (page []store.PlacedEvent, err error) {
	var w where
	w.add("e.pos < %", before)
	w.addText("e.n = (SELECT n FROM gavel.instances WHERE id = %)", q.Instance)
	w.conditions = append(w.conditions, "e.terms IS NOT NULL")
	for _, any := range q.Terms() {
		w.add("e.terms && %", any)
	}
	if !q.Since.IsZero() {
		w.add("e.at >= %", rows.NanosOf(q.Since))
	}
	if !q.Until.IsZero() {
		w.add("e.at < %", rows.NanosOf(q.Until))
	}
	err = s.read(ctx, "decisions", func(ctx context.Context, on handle) (err error) {
		page, err = queryAll(ctx, on, scanPlaced, s.sql(`SELECT `+placedColumns+w.String()+` ORDER BY e.pos DESC LIMIT `+w.value(n)), w.args...)
		return err
	})
	return page, err
}

// Figures implements store.Store.
func (s *Store) Figures(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.Figures, error] {
	q.Limit = 0
	return store.CountDecisions(s.Decisions(ctx, q))
}

// EventsAfter implements store.Store.
func (s *Store) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	return rows.Pages(ctx, q.Limit, pageSize, func(ctx context.Context, after *store.PlacedEvent, n int) (page []store.PlacedEvent, err error) {
		from := q.After
		if after != nil {
			from = after.Position
		}
		var w where
		w.add("e.pos > %", from)
		if q.UpTo != 0 {
			w.add("e.pos <= %", q.UpTo)
		}
		w.addText("e.n = (SELECT n FROM gavel.instances WHERE id = %)", q.Instance)
		w.addText("i.workflow = %", q.Workflow)
		w.addBytes("i.owner = %", q.Owner)
		err = s.read(ctx, "events in the order of commits", func(ctx context.Context, on handle) (err error) {
			page, err = queryAll(ctx, on, scanPlaced, s.sql(`SELECT `+placedColumns+w.String()+` ORDER BY e.pos LIMIT `+w.value(n)), w.args...)
			return err
		})
		return page, err
	})
}
