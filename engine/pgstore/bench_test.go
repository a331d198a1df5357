//go:build unix

package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine/pgstore"
	"github.com/gavel-mcp/gavel/engine/pgstore/pgtest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/sqlitestore"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

type committer interface {
	Commit(ctx context.Context, c store.Commit) error
}

// BenchmarkCommit is 64 writers, each at an instance of its own: grouped and in transactions of
// their own, positions from the counter and from a sequence, one replica and two, with SQLite beside it.
//
//	go test -run '^$' -bench Commit ./engine/pgstore
func BenchmarkCommit(b *testing.B) {
	server := pgtest.Shared(b)
	grouped := func(replicas int, counted bool) func(b *testing.B) []committer {
		return func(b *testing.B) (all []committer) {
			schema := newSchema(b)
			for range replicas {
				s := openAt(b, server.URL, schema)
				b.Cleanup(func() { _ = s.Close() })
				if !counted {
					if err := s.Uncount(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				all = append(all, s)
			}
			return all
		}
	}
	for _, v := range []struct {
		name string
		open func(b *testing.B) []committer
	}{
		{"grouped", grouped(1, true)},
		{"plain", func(b *testing.B) []committer {
			s := openAt(b, server.URL, newSchema(b))
			plain, err := pgstore.NewPlain(b.Context(), s.Store, server.URL, 64)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { plain.Close(); _ = s.Close() })
			return []committer{plain}
		}},
		{"grouped,two-replicas", grouped(2, true)},
		{"grouped,sequence", grouped(1, false)},
		{"grouped,two-replicas,sequence", grouped(2, false)},
		{"sqlite", func(b *testing.B) []committer {
			s, err := sqlitestore.Open(b.Context(), sqlitestore.Config{Path: b.TempDir() + "/gavel.db"})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			return []committer{s}
		}},
	} {
		b.Run(v.name, func(b *testing.B) { benchCommit(b, v.open(b)) })
	}
}

func benchCommit(b *testing.B, all []committer) {
	const writers = 64
	insts := make([]record.Instance, writers)
	each := func(do func(i int) error) {
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				if err := do(i); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	each(func(i int) error {
		c := storetest.Start(b, storetest.ID(i), `{}`)
		insts[i] = c.Next
		return all[i%len(all)].Commit(context.Background(), c)
	})
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	each(func(i int) error {
		for left.Add(-1) >= 0 {
			c := storetest.Advance(b, insts[i], "reviewing", fmt.Sprintf(`{"n":%d}`, b.N))
			if err := all[i%len(all)].Commit(context.Background(), c); err != nil {
				return err
			}
			insts[i] = c.Next
		}
		return nil
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}
