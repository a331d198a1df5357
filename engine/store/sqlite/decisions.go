package sqlite

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// blockBits is the number of position bits within a block of decision_times.
const blockBits = 12

// decisionColumns are the columns of an event with its position and the owner and version of its instance.
const decisionColumns = `e.pos, e.seq, i.owner, i.version, ` + eventColumns

// scannedEvent is an event as scanned by searches.
type scannedEvent struct {
	store.PlacedEvent
	seq int64
}

func scanPlaced(r row) (scannedEvent, error) {
	var p scannedEvent
	e, err := scanEvent(prefixScanner{r, []any{&p.Position, &p.seq, &p.Owner, &p.Version}})
	if err != nil && p.Position != 0 {
		return scannedEvent{}, fmt.Errorf("%w: the event at position %d: %w", ErrCorrupt, p.Position, err)
	}
	p.Event = e
	return p, err
}

// prefixScanner scans the first columns into first.
type prefixScanner struct {
	row
	first []any
}

func (p prefixScanner) Scan(dest ...any) error { return p.row.Scan(append(p.first, dest...)...) }

// span is the half-open range of positions [from, to).
type span struct{ from, to int64 }

func (s span) below(pos int64) span { return span{s.from, min(s.to, pos)} }

func (s span) above(pos int64) span { return span{max(s.from, pos), s.to} }

// Decisions implements store.Store. Decisions of a single instance are read along its history. Other queries take two
// steps: events that are not indexed are scanned, newest first; older ones are found by their terms.
func (s *Store) Decisions(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		given, matches := 0, q.Matcher()
		more := func(p scannedEvent, err error) bool {
			switch {
			case err != nil: // reports the error and stops
				yield(store.PlacedEvent{}, fmt.Errorf("find decisions: %w", err))
				return false
			case !matches(p.Event, p.Owner):
				return true
			}
			given++
			return yield(p.PlacedEvent, nil) && given != q.Limit
		}
		if q.Empty() {
			return
		}
		page, all := choosePages(q)
		if q.Instance != "" {
			s.searchPages(ctx, q, all, page, more)
			return
		}
		reached, last, err := s.indexPosition(ctx)
		if err != nil {
			more(scannedEvent{}, err)
			return
		}
		newest := max(reached, last-unindexed)
		if !s.searchPages(ctx, q, all.above(newest+1), pageByPosition, more) { // most searches end here
			return
		}
		all = all.below(newest + 1)
		if len(q.Terms()) > 0 || !q.Since.IsZero() || !q.Until.IsZero() {
			if reached, err = s.updateIndex(ctx); err != nil {
				more(scannedEvent{}, err)
				return
			}
		}
		if !s.searchPages(ctx, q, all.above(reached+1), pageByPosition, more) {
			return
		}
		old, err := s.narrowByTime(ctx, q, all.below(reached+1))
		if err != nil {
			more(scannedEvent{}, err)
			return
		}
		s.searchPages(ctx, q, old, page, more)
	}
}

// choosePages returns the access path of a query and the positions that it covers.
func choosePages(q store.DecisionQuery) (pageQuery, span) {
	all := span{1, math.MaxInt64}
	if q.Before > 0 {
		all.to = q.Before
	}
	switch {
	case q.Instance != "":
		return pageByHistory, all
	case len(q.Terms()) > 0:
		return pageByTerms, all
	}
	return pageByPosition, all
}

// A pageQuery builds the query for the page of events that follows after, which is zero for the first page.
type pageQuery func(q store.DecisionQuery, within span, after scannedEvent, n int) (string, []any)

// searchPages passes the events of a span to more, page by page, until more returns false. It reports whether the
// search continues.
func (s *Store) searchPages(ctx context.Context, q store.DecisionQuery, within span, page pageQuery, more func(scannedEvent, error) bool) bool {
	n := pageSize
	if q.Limit > 0 {
		n = min(n, q.Limit)
	}
	for after := (scannedEvent{}); within.from < within.to; {
		var found []scannedEvent
		err := s.read(ctx, "decisions", func(ctx context.Context) (err error) {
			query, args := page(q, within, after, n)
			found, err = queryAll(ctx, s.poolFor(ctx), scanPlaced, query, args...)
			return err
		})
		if err != nil {
			return more(scannedEvent{}, err)
		}
		for _, p := range found {
			if !more(p, nil) {
				return false
			}
		}
		if len(found) < n {
			break
		}
		after = found[len(found)-1]
		within = within.below(after.Position)
		n = pageSize // not all events found match
		if q.OnScan != nil && !q.OnScan(after.Position) {
			return false
		}
	}
	return true
}

func pageByHistory(q store.DecisionQuery, within span, after scannedEvent, n int) (string, []any) {
	var w where
	w.add("e.n = (SELECT n FROM instances WHERE id = ?)", q.Instance)
	if after.seq != 0 {
		w.add("e.seq < ?", after.seq)
	}
	w.add("e.pos < ?", within.to)
	return `SELECT ` + decisionColumns + ` FROM events e INDEXED BY events_seq CROSS JOIN instances i ON i.n = e.n` + w.String() +
		` ORDER BY e.seq DESC LIMIT ?`, append(w.args, n)
}

// EventsAfter implements store.Store.
func (s *Store) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	pages := rows.Pages(ctx, q.Limit, q.PageSize(pageSize), func(ctx context.Context, after *scannedEvent, n int) (page []scannedEvent, err error) {
		behind := q
		if after != nil {
			behind.After = after.Position
		}
		err = s.read(ctx, "events in the order of commits", func(ctx context.Context) (err error) {
			query, args := tailPage(behind, n)
			page, err = queryAll(ctx, s.poolFor(ctx), scanPlaced, query, args...)
			return err
		})
		return page, err
	})
	return func(yield func(store.PlacedEvent, error) bool) {
		for p, err := range pages {
			if !yield(p.PlacedEvent, err) {
				return
			}
		}
	}
}

func tailPage(q store.TailQuery, n int) (string, []any) {
	var w where
	from, order := "events e", "e.pos"
	if q.Instance != "" { // along its history, where positions also increase
		from, order = "events e INDEXED BY events_seq", "e.seq"
		w.add("e.n = (SELECT n FROM instances WHERE id = ?)", q.Instance)
	}
	w.add("e.pos > ?", q.After)
	if q.UpTo != 0 {
		w.add("e.pos <= ?", q.UpTo)
	}
	w.addText("i.workflow = ?", q.Workflow)
	w.addText("i.owner = ?", q.Owner)
	return `SELECT ` + decisionColumns + ` FROM ` + from + ` CROSS JOIN instances i ON i.n = e.n` + w.String() +
		` ORDER BY ` + order + ` LIMIT ?`, append(w.args, n)
}

func pageByPosition(_ store.DecisionQuery, within span, _ scannedEvent, n int) (string, []any) {
	return `SELECT ` + decisionColumns + ` FROM events e CROSS JOIN instances i ON i.n = e.n
		WHERE e.pos >= ? AND e.pos < ? ORDER BY e.pos DESC LIMIT ?`, []any{within.from, within.to, n}
}

func pageByTerms(q store.DecisionQuery, within span, _ scannedEvent, n int) (string, []any) {
	return `SELECT ` + decisionColumns + ` FROM decision_terms t CROSS JOIN events e ON e.pos = t.rowid CROSS JOIN instances i ON i.n = e.n
		WHERE t.decision_terms MATCH ? AND t.rowid >= ? AND t.rowid < ? ORDER BY t.rowid DESC LIMIT ?`,
		[]any{matchAll(q.Terms()), within.from, within.to, n}
}

// matchAll returns the FTS5 expression for at least one term of each list. Terms are quoted, and quotes in them
// doubled, so that they contain no syntax.
func matchAll(terms [][]string) string {
	quoted := strings.NewReplacer(`"`, `""`)
	all := make([]string, len(terms))
	for i, list := range terms {
		any := make([]string, len(list))
		for j, t := range list {
			any[j] = `"` + quoted.Replace(t) + `"`
		}
		all[i] = "(" + strings.Join(any, " OR ") + ")"
	}
	return strings.Join(all, " AND ")
}

// narrowByTime narrows a span to the blocks that may contain events within the query's times.
func (s *Store) narrowByTime(ctx context.Context, q store.DecisionQuery, all span) (span, error) {
	out := all
	err := s.read(ctx, "times of decisions", func(ctx context.Context) error {
		if !q.Since.IsZero() {
			const query = `SELECT coalesce(min(block), ?1) FROM decision_times WHERE last >= ?2`
			var block int64
			if err := s.poolFor(ctx).QueryRowContext(ctx, query, blockOf(math.MaxInt64), rows.NanosOf(q.Since)).Scan(&block); err != nil {
				return err
			}
			out = out.above(block << blockBits)
		}
		if !q.Until.IsZero() {
			const query = `SELECT coalesce(max(block), -1) FROM decision_times WHERE first < ?`
			var block int64
			if err := s.poolFor(ctx).QueryRowContext(ctx, query, rows.NanosOf(q.Until)).Scan(&block); err != nil {
				return err
			}
			out = out.below((block + 1) << blockBits)
		}
		return nil
	})
	return out, err
}

func blockOf(pos int64) int64 { return pos >> blockBits }
