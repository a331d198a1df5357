package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// shared holds the data that processes share in stores with several processes.
type shared struct {
	leases   map[string]store.Lease // by name; an ended lease keeps its number
	cursors  map[string]store.Cursor
	dataKeys map[string][]store.DataKey // by instance, ordered by number

	deadLetters map[letterKey]store.DeadLetter
}

func newShared() shared {
	return shared{leases: map[string]store.Lease{}, cursors: map[string]store.Cursor{}, dataKeys: map[string][]store.DataKey{}, deadLetters: map[letterKey]store.DeadLetter{}}
}

// checkLease returns an error if a lease has ended; nil is always valid. Callers must hold the lock.
func (s *Store) checkLease(l *store.Lease) error {
	if l == nil {
		return nil
	}
	if have := s.leases[l.Name]; have.Number != l.Number || !have.Ends.After(time.Now()) {
		return fmt.Errorf("%w: %s, number %d", store.ErrLeaseLost, l.Name, l.Number)
	}
	return nil
}

// TakeLease implements store.Store.
func (s *Store) TakeLease(ctx context.Context, name, owner string, d time.Duration) (l store.Lease, err error) {
	err = s.write(ctx, func() error {
		now := time.Now().UTC().Round(0)
		l = s.leases[name]
		switch ended := !l.Ends.After(now); {
		case !ended && l.Owner != owner:
			return fmt.Errorf("%w: %s", store.ErrLeaseTaken, name)
		case l.Number == 0:
			l.Number = now.UnixNano() // a dropped lease may have had a lower number
		case ended:
			l.Number++
		}
		l.Name, l.Owner, l.Ends = name, owner, now.Add(d)
		s.leases[name] = l
		return nil
	})
	return l, err
}

// EndLease implements store.Store.
func (s *Store) EndLease(ctx context.Context, l store.Lease) error {
	return s.write(ctx, func() error {
		if have := s.leases[l.Name]; have.Number == l.Number {
			have.Ends = time.Time{}
			s.leases[l.Name] = have
		}
		return nil
	})
}

// DropLeases implements store.Store.
func (s *Store) DropLeases(ctx context.Context, prefix string, ago time.Duration) error {
	return s.write(ctx, func() error {
		maps.DeleteFunc(s.leases, func(name string, l store.Lease) bool {
			return strings.HasPrefix(name, prefix) && l.Ends.Before(time.Now().Add(-ago))
		})
		return nil
	})
}

// MoveCursor implements store.Store.
func (s *Store) MoveCursor(ctx context.Context, c store.Cursor, from int64, lease *store.Lease) error {
	if err := c.Check(); err != nil {
		return err
	}
	return s.write(ctx, func() error {
		if err := s.checkLease(lease); err != nil {
			return err
		}
		have, there := s.cursors[c.Name]
		if !there {
			have.Position = store.NoCursor
		}
		if have.Position != from {
			return fmt.Errorf("%w: the cursor %s is at %d", store.ErrConflict, c.Name, have.Position)
		}
		c.MovedAt = time.Now().UTC().Round(0)
		c.MadeAt = have.MadeAt
		if !there {
			c.MadeAt = c.MovedAt
		}
		s.cursors[c.Name] = c
		return nil
	})
}

// Cursors implements store.Store.
func (s *Store) Cursors(ctx context.Context) (all []store.Cursor, err error) {
	err = s.read(ctx, func() error {
		all = slices.Collect(maps.Values(s.cursors))
		slices.SortFunc(all, func(a, b store.Cursor) int { return cmp.Compare(a.Name, b.Name) })
		return nil
	})
	return all, err
}

// DropCursor implements store.Store.
func (s *Store) DropCursor(ctx context.Context, name string) error {
	return s.write(ctx, func() error {
		if _, there := s.cursors[name]; !there {
			return fmt.Errorf("%w: cursor %s", store.ErrNotFound, name)
		}
		delete(s.cursors, name)
		return nil
	})
}

// PutDataKey implements store.Store.
func (s *Store) PutDataKey(ctx context.Context, k store.DataKey, was *store.DataKey) error {
	if err := k.CheckReplaces(was); err != nil {
		return err
	}
	return s.write(ctx, func() error {
		all := s.dataKeys[k.Instance]
		k = cloneDataKey(k)
		switch at := k.Number - 1; {
		case was == nil && at == len(all):
			s.dataKeys[k.Instance] = append(all, k)
		case was != nil && at < len(all) && all[at].Equal(*was):
			clear(all[at].Wrapped)
			all[at] = k
		default:
			return fmt.Errorf("%w: data key %d of %s has changed", store.ErrConflict, k.Number, k.Instance)
		}
		return nil
	})
}

// DataKey implements store.Store.
func (s *Store) DataKey(ctx context.Context, instance string, number int) (k store.DataKey, err error) {
	err = s.read(ctx, func() error {
		all := s.dataKeys[instance]
		at := cmp.Or(number, len(all)) - 1
		if at < 0 || at >= len(all) {
			return fmt.Errorf("%w: data key %d of %s", store.ErrNotFound, number, instance)
		}
		k = cloneDataKey(all[at])
		return nil
	})
	return k, err
}

// DataKeys implements store.Store.
func (s *Store) DataKeys(ctx context.Context, instance string, number int) iter.Seq2[store.DataKey, error] {
	return list(ctx, s, func() (found []store.DataKey) {
		for _, id := range slices.Sorted(maps.Keys(s.dataKeys)) {
			for _, k := range s.dataKeys[id] {
				if id > instance || id == instance && k.Number > number {
					found = append(found, cloneDataKey(k))
				}
			}
		}
		return found
	}, func(k store.DataKey) (store.DataKey, error) { return k, nil })
}

func cloneDataKey(k store.DataKey) store.DataKey {
	k.Wrapped, k.MadeAt, k.DestroyedAt = bytes.Clone(k.Wrapped), k.MadeAt.UTC(), k.DestroyedAt.UTC()
	return k
}
