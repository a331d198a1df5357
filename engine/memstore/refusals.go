package memstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// learn keeps a lesson. The caller holds the write lock.
func (s *Store) learn(l *store.Lesson) {
	if l == nil {
		return
	}
	if l.Cleared {
		s.dropRefusals(func(kept store.Lesson) bool {
			return kept.Guard == l.Guard || kept.Guard == "" && l.Bound != "" && kept.Identity == l.Bound
		})
	}
	if l.Refused {
		oldest := l.At.Add(-store.MaxRefusalAge)
		s.dropRefusals(func(kept store.Lesson) bool { return kept.At.Before(oldest) })
		kept := *l
		kept.Opinion = bytes.Clone(l.Opinion)
		s.refusals = append(s.refusals, kept)
		if l.Bound != "" && l.Opinion != nil { // a row of its own, which counts for nothing
			kept.Guard, kept.Identity = "", l.Bound
			s.refusals = append(s.refusals, kept)
		}
	}
}

// dropRefusals drops refusals.
func (s *Store) dropRefusals(which func(store.Lesson) bool) {
	s.refusals = slices.DeleteFunc(s.refusals, which)
}

// Learn implements store.Store.
func (s *Store) Learn(ctx context.Context, l store.Lesson) error {
	unlock, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s.learn(&l)
	return nil
}

// Refusals implements store.Store.
func (s *Store) Refusals(ctx context.Context, guard string, since time.Time) (int, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	n := 0
	for _, l := range s.refusals {
		if l.Guard == guard && !l.At.Before(since) {
			n++
		}
	}
	return n, nil
}

// RefusedOpinion implements store.Store.
func (s *Store) RefusedOpinion(ctx context.Context, identity string, since time.Time) (json.RawMessage, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for i := len(s.refusals) - 1; i >= 0; i-- {
		if l := s.refusals[i]; l.Identity == identity && l.Opinion != nil && !l.At.Before(since) {
			return bytes.Clone(l.Opinion), nil
		}
	}
	return nil, fmt.Errorf("%w: an opinion of this case", store.ErrNotFound)
}

// ClearRefusals implements store.Store.
func (s *Store) ClearRefusals(ctx context.Context, q store.RefusalQuery) (int, error) {
	unlock, err := s.write(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	is := func(want, got string) bool { return want == "" || want == got }
	n := 0
	s.dropRefusals(func(l store.Lesson) bool {
		selected := is(q.Principal, l.Principal) && is(q.Workflow, l.Workflow) && is(q.Action, l.Action)
		if selected && l.Guard != "" {
			n++
		}
		return selected
	})
	return n, nil
}
