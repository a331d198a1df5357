package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// The index of decisions is behind the events. A search first brings it near them, in
// transactions of the writer that are short, because others wait for it meanwhile; so
// nothing is indexed while decisions are made, and everything once.
const (
	// indexedAtOnce is how many events one transaction indexes.
	indexedAtOnce = 256
	// unindexed is how many events a search rather looks through than indexes.
	unindexed = 256
	// indexFor is how long one search indexes before it looks through what is left, from
	// the newest: the first search of a large store must not take a minute.
	indexFor = 3 * time.Second
	// indexPatience is how long a search waits for the writer.
	indexPatience = time.Second
	// indexAgain is how long nothing is indexed after the index could not be written.
	indexAgain = 10 * time.Second
)

// updateIndex brings the index towards the events that are there now, all but the newest few,
// for a bounded time, and returns the position that it has reached. Where nothing can be
// written it stays where it is, and the search looks through more.
func (s *Store) updateIndex(ctx context.Context) (reached int64, err error) {
	newest, until := int64(-1), time.Time{}
	for {
		var last int64
		err := s.read(ctx, "the index of decisions", func(ctx context.Context) error {
			const query = `SELECT pos, (SELECT coalesce(max(pos), 0) FROM events) FROM decision_index`
			return s.poolFor(ctx).QueryRowContext(ctx, query).Scan(&reached, &last)
		})
		if err != nil {
			return 0, err
		}
		if newest < 0 {
			newest = last // what is committed while this indexes is not its affair
			until = time.Now().Add(s.indexFor)
		} else if time.Now().After(until) {
			return reached, nil
		}
		if newest-reached <= unindexed || s.writer == nil || time.Now().UnixNano() < s.indexAfter.Load() {
			return reached, nil
		}
		err = s.indexBehind(ctx, reached)
		switch {
		case err == nil, errors.Is(err, store.ErrConflict): // another search was faster
		case ctx.Err() != nil, errors.Is(err, store.ErrClosed):
			return 0, err
		default:
			s.indexAfter.Store(time.Now().Add(indexAgain).UnixNano())
			s.log.WarnContext(ctx, "the index of decisions cannot be written; searches are slower", "cause", err.Error())
			return reached, nil
		}
	}
}

// indexBehind indexes the events behind a position in one transaction. Somebody else
// who does the same meanwhile, or removes one of them, makes it a store.ErrConflict.
func (s *Store) indexBehind(ctx context.Context, reached int64) error {
	b := indexBatch{from: reached, times: map[int64]span{}}
	err := s.read(ctx, "events that are not indexed", func(ctx context.Context) error {
		const query = `SELECT ` + decisionColumns + ` FROM events e CROSS JOIN instances i ON i.n = e.n
			WHERE e.pos > ? ORDER BY e.pos LIMIT ?`
		events, err := queryAll(ctx, s.poolFor(ctx), scanPlaced, query, reached, indexedAtOnce)
		for _, e := range events {
			b.add(e)
		}
		return err
	})
	if err != nil || b.to == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	return s.write(ctx, b.size, "index decisions", b.apply)
}

type indexBatch struct {
	from, to int64
	events   int // that were read
	entries  []indexEntry
	times    map[int64]span // by block, in nanoseconds, both ends included
	size     int
}

type indexEntry struct {
	pos   int64
	terms string
}

func (b *indexBatch) add(p placed) {
	b.to = p.Position
	b.events++
	at := p.Event.Time.UnixNano()
	block := blockOf(p.Position)
	t, ok := b.times[block]
	if !ok {
		t = span{at, at}
	}
	b.times[block] = span{min(t.from, at), max(t.to, at)}
	if terms := store.DecisionTerms(p.Event, p.Owner); len(terms) > 0 {
		entry := indexEntry{p.Position, strings.Join(terms, " ")}
		b.entries = append(b.entries, entry)
		b.size += len(entry.terms)
	}
}

func (b *indexBatch) apply(st *statements) error {
	overtaken := fmt.Errorf("%w: the index of decisions is not at position %d", store.ErrConflict, b.from)
	if err := st.execOne(overtaken, st.moveIndex, b.to, b.from, b.events); err != nil {
		return err
	}
	for _, e := range b.entries { // one row each: what could fail halfway makes FTS5 write after every row
		if err := st.exec(st.addTerms, e.pos, e.terms); err != nil {
			return err
		}
	}
	for block, t := range b.times {
		if err := st.exec(st.addTimes, block, t.from, t.to); err != nil {
			return err
		}
	}
	return nil
}

// nanosOf is a time as it is stored; one that does not fit is the nearest that does.
func nanosOf(t time.Time) int64 {
	const most = 1<<63 - 1
	switch {
	case t.Before(time.Unix(0, -most)):
		return -most
	case t.After(time.Unix(0, most)):
		return most
	}
	return t.UnixNano()
}
