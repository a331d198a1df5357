package memory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/store"
)

// letterKey is the key of a dead letter.
type letterKey struct {
	cursor   string
	position int64
}

// AddDeadLetter implements store.Store.
func (s *Store) AddDeadLetter(ctx context.Context, l store.DeadLetter, lease *store.Lease) error {
	if err := l.Check(); err != nil {
		return err
	}
	return s.write(ctx, func() error {
		if err := s.checkLease(lease); err != nil {
			return err
		}
		l.At = l.At.UTC()
		s.deadLetters[letterKey{l.Cursor, l.Position}] = l
		return nil
	})
}

// DeadLetters implements store.Store.
func (s *Store) DeadLetters(ctx context.Context, cursor string) iter.Seq2[store.DeadLetter, error] {
	return list(ctx, s, func() (found []store.DeadLetter) {
		for l := range maps.Values(s.deadLetters) {
			if cursor == "" || l.Cursor == cursor {
				found = append(found, l)
			}
		}
		slices.SortFunc(found, func(a, b store.DeadLetter) int {
			return cmp.Or(strings.Compare(a.Cursor, b.Cursor), cmp.Compare(a.Position, b.Position))
		})
		return found
	}, func(l store.DeadLetter) (store.DeadLetter, error) { return l, nil })
}

// DropDeadLetter implements store.Store.
func (s *Store) DropDeadLetter(ctx context.Context, cursor string, position int64) error {
	return s.write(ctx, func() error {
		at := letterKey{cursor, position}
		if _, there := s.deadLetters[at]; !there {
			return fmt.Errorf("%w: dead letter %d of %s", store.ErrNotFound, position, cursor)
		}
		delete(s.deadLetters, at)
		return nil
	})
}
