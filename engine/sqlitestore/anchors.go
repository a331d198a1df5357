package sqlitestore

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// headsPage is how many heads are read at a time: they are small.
const headsPage = 1024

// AddAnchor implements store.Store.
func (s *Store) AddAnchor(ctx context.Context, a store.Anchor) error {
	refused := fmt.Errorf("%w: anchor %d is not the next, or a history was shortened meanwhile", store.ErrConflict, a.Number)
	return s.write(ctx, len(a.Note)+len(a.Heads), "add an anchor", func(st *statements) error {
		return st.execOne(refused, st.addAnchor, a.Number, a.At.UnixNano(), a.Note, orEmpty(a.Heads), a.Seen, string(record.Truncated))
	})
}

const anchorColumns = `number, at, note, heads`

func scanAnchor(r row) (store.Anchor, error) {
	var a store.Anchor
	var at int64
	if err := r.Scan(&a.Number, &at, &a.Note, &a.Heads); err != nil {
		return store.Anchor{}, err
	}
	a.At = timeOf(at)
	return a, nil
}

// Anchors implements store.Store.
func (s *Store) Anchors(ctx context.Context, after int64) iter.Seq2[store.Anchor, error] {
	const query = `SELECT ` + anchorColumns + ` FROM anchors WHERE number > ? ORDER BY number LIMIT 1` // heads can be large
	return func(yield func(store.Anchor, error) bool) {
		for {
			var page []store.Anchor
			err := s.read(ctx, "anchors", func(ctx context.Context) (err error) {
				page, err = queryAll(ctx, s.poolFor(ctx), scanAnchor, query, after)
				return err
			})
			if err != nil {
				yield(store.Anchor{}, err)
				return
			}
			if len(page) == 0 || !yield(page[0], nil) {
				return
			}
			after = page[0].Number
		}
	}
}

// LastAnchor implements store.Store.
func (s *Store) LastAnchor(ctx context.Context) (a store.Anchor, err error) {
	const query = `SELECT ` + anchorColumns + ` FROM anchors ORDER BY number DESC LIMIT 1`
	err = s.read(ctx, "the last anchor", func(ctx context.Context) (err error) {
		a, err = scanAnchor(s.poolFor(ctx).QueryRowContext(ctx, query))
		return err
	})
	return a, err
}

// LastPosition implements store.Store.
func (s *Store) LastPosition(ctx context.Context) (n int64, err error) {
	err = s.read(ctx, "the last position", func(ctx context.Context) error {
		return s.poolFor(ctx).QueryRowContext(ctx, `SELECT coalesce(max(pos), 0) FROM events`).Scan(&n)
	})
	return n, err
}

// Heads implements store.Store. All heads come page by page: who reads them reads
// much else meanwhile. Those above a position come at once, because to find them again
// for each page would cost what is saved.
func (s *Store) Heads(ctx context.Context, above int64) iter.Seq2[record.Head, error] {
	if above > 0 {
		return s.headsAbove(ctx, above)
	}
	const query = `SELECT id, seq, head FROM instances WHERE id > ? ORDER BY id LIMIT ?`
	return func(yield func(record.Head, error) bool) {
		for after, full := "", true; full; {
			page, err := s.heads(ctx, query, after, headsPage)
			if err != nil {
				yield(record.Head{}, err)
				return
			}
			for _, h := range page {
				if !yield(h, nil) {
					return
				}
				after = h.Instance
			}
			full = len(page) == headsPage
		}
	}
}

func (s *Store) headsAbove(ctx context.Context, above int64) iter.Seq2[record.Head, error] {
	const query = `SELECT id, seq, head FROM instances WHERE n IN (SELECT n FROM events WHERE pos > ?) ORDER BY id`
	return func(yield func(record.Head, error) bool) {
		all, err := s.heads(ctx, query, above)
		if err != nil {
			yield(record.Head{}, err)
			return
		}
		for _, h := range all {
			if !yield(h, nil) {
				return
			}
		}
	}
}

func (s *Store) heads(ctx context.Context, query string, args ...any) (all []record.Head, err error) {
	err = s.read(ctx, "where instances stand", func(ctx context.Context) (err error) {
		all, err = queryAll(ctx, s.poolFor(ctx), scanHead, query, args...)
		return err
	})
	return all, err
}

func scanHead(r row) (record.Head, error) {
	var h record.Head
	var hash []byte
	if err := r.Scan(&h.Instance, &h.Seq, &hash); err != nil {
		return record.Head{}, err
	}
	h.Hash = hex.EncodeToString(hash)
	return h, nil
}
