package memstore

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// AddAnchor implements store.Store.
func (s *Store) AddAnchor(ctx context.Context, a store.Anchor) error {
	unlock, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if have := int64(len(s.anchors)); a.Number != have+1 {
		return fmt.Errorf("%w: the last anchor is %d", store.ErrConflict, have)
	}
	if a.Number == 1 && s.cutSince(a.Seen) {
		return fmt.Errorf("%w: the beginning of a history was removed meanwhile", store.ErrConflict)
	}
	s.anchors = append(s.anchors, cloneAnchor(a))
	return nil
}

// cutSince reports whether the beginning of a history was removed above a position.
func (s *Store) cutSince(position int64) bool {
	for _, p := range s.order[min(max(position, 0), int64(len(s.order))):] {
		if e, _, there := s.eventAtLocked(p); there && e.Kind == record.Truncated {
			return true
		}
	}
	return false
}

// Anchors implements store.Store.
func (s *Store) Anchors(ctx context.Context, after int64) iter.Seq2[store.Anchor, error] {
	return func(yield func(store.Anchor, error) bool) {
		unlock, err := s.read(ctx)
		if err != nil {
			yield(store.Anchor{}, err)
			return
		}
		all := s.anchors[:len(s.anchors):len(s.anchors)] // only ever appended to
		unlock()
		for _, a := range all {
			if a.Number > after && !yield(cloneAnchor(a), nil) {
				return
			}
		}
	}
}

// LastAnchor implements store.Store.
func (s *Store) LastAnchor(ctx context.Context) (store.Anchor, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return store.Anchor{}, err
	}
	defer unlock()
	if len(s.anchors) == 0 {
		return store.Anchor{}, fmt.Errorf("%w: no anchor", store.ErrNotFound)
	}
	return cloneAnchor(s.anchors[len(s.anchors)-1]), nil
}

// cloneAnchor is an anchor that shares no memory with a.
func cloneAnchor(a store.Anchor) store.Anchor {
	a.At, a.Heads, a.Seen = a.At.UTC(), bytes.Clone(a.Heads), 0
	return a
}

// LastPosition implements store.Store.
func (s *Store) LastPosition(ctx context.Context) (int64, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return int64(len(s.order)), nil
}

// Heads implements store.Store.
func (s *Store) Heads(ctx context.Context, above int64) iter.Seq2[record.Head, error] {
	return func(yield func(record.Head, error) bool) {
		unlock, err := s.read(ctx)
		if err != nil {
			yield(record.Head{}, err)
			return
		}
		var heads []record.Head
		seen := map[string]bool{}
		for _, p := range s.order[min(max(above, 0), int64(len(s.order))):] {
			if !seen[p.instance] {
				seen[p.instance] = true
				now := s.instances[p.instance].now
				heads = append(heads, record.Head{Instance: now.ID, Seq: now.Seq, Hash: now.Head})
			}
		}
		unlock()
		slices.SortFunc(heads, func(a, b record.Head) int { return strings.Compare(a.Instance, b.Instance) })
		for _, h := range heads {
			if !yield(h, nil) {
				return
			}
		}
	}
}
