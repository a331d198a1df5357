package memory

import (
	"context"
	"maps"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

type counter struct {
	n    int64
	ends time.Time
}

// Count implements store.Store.
func (s *Store) Count(ctx context.Context, all ...store.Addition) (counts []store.Count, err error) {
	err = s.write(ctx, func() error {
		now := time.Now()
		if len(s.counters) >= s.pruneAt {
			maps.DeleteFunc(s.counters, func(_ string, c counter) bool { return !now.Before(c.ends) })
			s.pruneAt = max(minPruneSize, 2*len(s.counters))
		}
		for _, a := range all {
			c, ok := s.counters[a.Name]
			if !ok || !now.Before(c.ends) {
				c = counter{ends: now.Add(a.Lifetime)}
			}
			if a.Max != 0 && c.n+a.Add > a.Max {
				counts = append(counts, store.Count{Full: true})
				continue
			}
			c.n = max(0, c.n+a.Add)
			s.counters[a.Name] = c
			counts = append(counts, store.Count{N: c.n, Left: c.ends.Sub(now)})
		}
		return nil
	})
	return counts, err
}

// minPruneSize is the smallest number of counters at which expired ones are removed.
const minPruneSize = 1024
