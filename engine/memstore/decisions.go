package memstore

import (
	"context"
	"iter"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// lookedEvery is how many events lie between two calls of DecisionQuery.Looked.
const lookedEvery = 64

// Decisions implements store.Store. Positions are places in the order of commits,
// from 1.
func (s *Store) Decisions(ctx context.Context, q store.DecisionQuery) iter.Seq2[store.DecisionHit, error] {
	return func(yield func(store.DecisionHit, error) bool) {
		unlock, err := s.read(ctx)
		if err != nil {
			yield(store.DecisionHit{}, err)
			return
		}
		all := s.order[:len(s.order):len(s.order)] // only ever appended to
		unlock()
		if q.Empty() {
			return
		}
		given, matches := 0, q.Matcher()
		for i := len(all) - 1; i >= 0; i-- {
			at := int64(i + 1)
			if q.Before != 0 && at >= q.Before {
				continue
			}
			if err := ctx.Err(); err != nil {
				yield(store.DecisionHit{}, err)
				return
			}
			if e, of, there := s.eventAt(all[i]); there && matches(e, of.Owner) {
				copied, err := copyEvent(e)
				if !yield(store.DecisionHit{Position: at, Event: copied}, err) || err != nil {
					return
				}
				if given++; given == q.Limit {
					return
				}
			}
			if at%lookedEvery == 0 && q.Looked != nil && !q.Looked(at) {
				return
			}
		}
	}
}

// place names an event by what does not change when the beginning of its history is
// removed.
type place struct {
	instance string
	seq      int64
}

// eventAt returns an event with the owner of its instance, and whether it is still there.
func (s *Store) eventAt(p place) (e record.Event, of record.Instance, there bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.eventAtLocked(p)
}

// eventAtLocked is ordered for who holds the lock.
func (s *Store) eventAtLocked(p place) (e record.Event, of record.Instance, there bool) {
	h := s.instances[p.instance]
	if h == nil || len(h.events) == 0 {
		return record.Event{}, record.Instance{}, false
	}
	i := p.seq - h.events[0].Seq
	if i < 0 || i >= int64(len(h.events)) {
		return record.Event{}, record.Instance{}, false
	}
	return h.events[i], h.now, true
}
