package postgres

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// How the events of a page are found: the positions nearest to its start are scanned one by one, which is enough to
// fill most pages. Events further away are found by the index of their terms, one block of positions after another.
// So a page reads little more than its own rows, no matter how often and where a term occurs.

// nearbyPositions is the number of positions that are scanned one by one.
const nearbyPositions = 512

// placedColumns are the columns of an event with its position and the owner and version of its instance.
const placedColumns = `e.pos, i.owner, i.version, ` + eventColumns

const placedTables = ` FROM gavel.events e JOIN gavel.instances i USING (n)`

func scanPlaced(r pgx.Row) (p store.PlacedEvent, err error) {
	var owner []byte
	p.Event, err = scanEvent(r, &p.Position, &owner, &p.Version)
	if err != nil && p.Position != 0 {
		return p, wrapDamaged(fmt.Errorf("the event at position %d: %w", p.Position, err))
	}
	p.Owner = string(owner)
	return p, err
}

// eventTerms returns the index terms of an event. For an event without a decision they are only its workflow and
// owner.
func eventTerms(e record.Event, owner string) []string {
	if terms := store.DecisionTerms(e, owner); terms != nil {
		return terms
	}
	return slices.Concat(store.DecisionQuery{Workflow: e.Workflow, Owner: owner}.Terms()...)
}

// find reads pages of at most size events and yields the events that match. It ends after limit matches; 0 means no
// limit. next returns the page that follows a position in the order of the search; the first page follows from. looked,
// if not nil, is called after each full page with the position that was reached. If it returns false, find ends.
func find(limit, size int, from int64, next func(from int64, n int) ([]store.PlacedEvent, error), matches func(store.PlacedEvent) bool, looked func(int64) bool) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		given, n := 0, size
		if limit > 0 {
			n = min(n, limit)
		}
		for from := from; ; n = size { // later pages have full size, since not every event of a page matches
			page, err := next(from, n)
			if err != nil {
				yield(store.PlacedEvent{}, err)
				return
			}
			for _, p := range page {
				if !matches(p) {
					continue
				}
				if given++; !yield(p, nil) || given == limit {
					return
				}
			}
			if len(page) < n {
				return
			}
			if from = page[n-1].Position; looked != nil && !looked(from) {
				return
			}
		}
	}
}

// query is an SQL statement with its arguments.
type query struct {
	sql  string
	args []any
}

// search selects events: those between two positions, in ascending or descending order.
type search struct {
	q            store.DecisionQuery // its terms, times and instance are used
	above, below int64               // both exclusive
	newestFirst  bool
}

func (s search) order() string {
	if s.newestFirst {
		return " DESC"
	}
	return ""
}

// queries returns functions that build the queries for a page of n events. They are run in turn until the page is full.
func (s search) queries() []func(n int) query {
	near, far := s, s
	switch {
	case s.q.Instance != "":
		return []func(n int) query{s.alongHistory}
	case len(s.q.Terms()) == 0 && s.q.Since.IsZero() && s.q.Until.IsZero():
		return []func(n int) query{s.alongPositions}
	case s.newestFirst:
		near.above = max(s.above, s.below-nearbyPositions)
		far.below = near.above + 1
	default:
		near.below = min(s.below, s.above+nearbyPositions)
		far.above = near.below - 1
	}
	if far.above+1 >= far.below {
		return []func(n int) query{near.alongPositions}
	}
	return []func(n int) query{near.alongPositions, far.inBlocks}
}

// addTimes adds the conditions that the column last is at or after q.Since, and the column first before q.Until.
func (w *where) addTimes(q store.DecisionQuery, last, first string) {
	if !q.Since.IsZero() {
		w.add(last+" >= %", rows.NanosOf(q.Since))
	}
	if !q.Until.IsZero() {
		w.add(first+" < %", rows.NanosOf(q.Until))
	}
}

// where returns the conditions on events; place is the SQL expression for their position.
func (s search) where(place string) (w where) {
	w.add(place+" > %", s.above)
	w.add(place+" < %", s.below)
	w.addTimes(s.q, "e.at", "e.at")
	for _, any := range s.q.Terms() {
		w.add("e.terms && %", any)
	}
	return w
}

func (s search) alongPositions(n int) query {
	w := s.where("e.pos")
	return query{`SELECT ` + placedColumns + placedTables + w.String() + ` ORDER BY e.pos` + s.order() + ` LIMIT ` + w.value(n), w.args}
}

// alongHistory reads the events of one instance in the order of seq, in which their positions increase, too.
func (s search) alongHistory(n int) query {
	w := s.where("e.pos")
	w.addText("e.n = (SELECT n FROM gavel.instances WHERE id = %)", s.q.Instance)
	return query{`SELECT ` + placedColumns + placedTables + w.String() + ` ORDER BY e.seq` + s.order() + ` LIMIT ` + w.value(n), w.args}
}

// inBlocks searches one block after another. In each it finds events by their terms or, if the query has none, by
// position.
func (s search) inBlocks(n int) query {
	w := s.where("-(-e.pos)") // so written, it avoids the index of positions, which would be read completely for each block
	blocks := where{builder: w.builder}
	blocks.addTimes(s.q, "last", "first")
	blocks.add("block >= %", s.above>>blockBits)
	blocks.add("block <= %", s.below>>blockBits)
	ofBlock, first := ` AND ARRAY[e.pos >> 13] && ARRAY[b.block] ORDER BY -e.pos`, ` DESC`
	if s.newestFirst {
		first = ``
	}
	if len(s.q.Terms()) == 0 {
		ofBlock, first = ` AND e.pos >= b.block << 13 AND e.pos < (b.block + 1) << 13 ORDER BY e.pos`, s.order()
	}
	limit := ` LIMIT ` + blocks.value(n)
	return query{`SELECT f.* FROM (SELECT block FROM gavel.blocks` + blocks.String() + ` ORDER BY block` + s.order() + `) b CROSS JOIN LATERAL (SELECT ` +
		placedColumns + ` FROM (SELECT * FROM gavel.events e` + w.String() + ofBlock + first + limit + `) e JOIN gavel.instances i USING (n)
		ORDER BY e.pos` + s.order() + `) f ORDER BY b.block` + s.order() + limit, blocks.args}
}

// page reads a page of at most n events.
func (s search) page(ctx context.Context, db *Store, on handle, n int) (page []store.PlacedEvent, err error) {
	for _, next := range s.queries() {
		q := next(n - len(page))
		more, err := queryAll(ctx, on, scanPlaced, db.sql(q.sql), q.args...)
		page = append(page, more...)
		if err != nil || len(page) == n {
			return page, err
		}
	}
	return page, nil
}

// Decisions implements store.Store.
func (s *Store) Decisions(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.PlacedEvent, error] {
	if q.Empty() {
		return func(func(store.PlacedEvent, error) bool) {}
	}
	matches := q.Matcher()
	return find(q.Limit, pageSize, q.Before, func(before int64, n int) (page []store.PlacedEvent, err error) {
		err = s.read(ctx, "decisions", func(ctx context.Context, on handle) (err error) {
			if before == 0 {
				if err := on.QueryRow(ctx, s.sql(`SELECT last + 1 FROM gavel.counter`)).Scan(&before); err != nil {
					return err //nolint:wrapcheck // read wraps it
				}
			}
			page, err = search{q: q, below: before, newestFirst: true}.page(ctx, s, on, n)
			return err
		})
		return page, err
	}, func(p store.PlacedEvent) bool { return matches(p.Event, p.Owner) }, q.OnScan)
}

// EventsAfter implements store.Store.
func (s *Store) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	upTo := q.UpTo
	if upTo == 0 {
		upTo = math.MaxInt64 - 1
	}
	terms := store.DecisionQuery{Instance: q.Instance, Workflow: q.Workflow, Owner: q.Owner}
	return find(q.Limit, q.PageSize(pageSize), q.After, func(after int64, n int) (page []store.PlacedEvent, err error) {
		err = s.read(ctx, "events in the order of commits", func(ctx context.Context, on handle) (err error) {
			page, err = search{q: terms, above: after, below: upTo + 1}.page(ctx, s, on, n)
			return err
		})
		return page, err
	}, func(p store.PlacedEvent) bool {
		return (q.Workflow == "" || p.Event.Workflow == q.Workflow) && (q.Owner == "" || p.Owner == q.Owner)
	}, nil)
}
