package memstore

import (
	"context"
	"iter"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// EventsAfter implements store.Store.
func (s *Store) EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		unlock, err := s.read(ctx)
		if err != nil {
			yield(store.PlacedEvent{}, err)
			return
		}
		all := s.order[:len(s.order):len(s.order)] // only ever appended to
		unlock()
		given := 0
		for i := max(q.After, 0); i < int64(len(all)) && (q.UpTo == 0 || i < q.UpTo); i++ {
			if err := ctx.Err(); err != nil {
				yield(store.PlacedEvent{}, err)
				return
			}
			e, of, there := s.eventAt(all[i])
			if !there || q.Instance != "" && e.Instance != q.Instance || q.Workflow != "" && e.Workflow != q.Workflow || q.Owner != "" && of.Owner != q.Owner {
				continue
			}
			copied, err := copyEvent(e)
			if !yield(store.PlacedEvent{Position: i + 1, Owner: of.Owner, Version: of.Version, Event: copied}, err) || err != nil {
				return
			}
			if given++; given == q.Limit {
				return
			}
		}
	}
}

// Running implements store.Store.
func (s *Store) Running(ctx context.Context, owner string, most int) (int, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	n := 0
	for _, h := range s.instances {
		if n == most {
			break
		}
		if h.now.Owner == owner && h.now.Status == record.Running {
			n++
		}
	}
	return n, nil
}
