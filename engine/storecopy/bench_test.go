package storecopy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine/pgstore/pgtest"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storecopy"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// BenchmarkCopy copies 5000 instances with 10 events each: every pass reads both stores.
func BenchmarkCopy(b *testing.B) {
	const instances, events = 5000, 10
	server := pgtest.Shared(b)
	dir := b.TempDir()
	first := mustOpen(b, sqliteAt(filepath.Join(dir, "first.db")))
	b.Cleanup(func() { closeAll(b, first) })
	var writers sync.WaitGroup
	for w := range 50 {
		writers.Go(func() {
			for i := w; i < instances; i += 50 {
				c := storetest.Start(b, storetest.ID(i), `{"n":0}`)
				for n := range events {
					if err := first.Commit(b.Context(), c); err != nil {
						b.Error(err)
						return
					}
					c = storetest.Advance(b, c.Next, "draft", fmt.Sprintf(`{"n":%d}`, n))
				}
			}
		})
	}
	writers.Wait()
	schema := fmt.Sprintf("bench_%d", os.Getpid())
	b.Cleanup(func() { server.Exec(b, `DROP SCHEMA IF EXISTS `+schema+` CASCADE`) })
	n := 0
	copyTo := func(b *testing.B, from store.Store, at func() place) {
		b.Helper()
		for b.Loop() {
			to, err := at().create()
			if err != nil {
				b.Fatal(err)
			}
			r, err := storecopy.Copy(b.Context(), from.(opened).OpenView, to, noProgress)
			if err != nil || r.Rows["events"] != instances*events {
				b.Fatal(r, err)
			}
			if err := to.Finish(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(instances*events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	}
	b.Run("sqlite-postgres", func(b *testing.B) {
		copyTo(b, first, func() place {
			server.Exec(b, `DROP SCHEMA IF EXISTS `+schema+` CASCADE`)
			return postgresAt(server, schema)
		})
	})
	b.Run("postgres-sqlite", func(b *testing.B) {
		from := mustOpen(b, postgresAt(server, schema))
		defer closeAll(b, from)
		copyTo(b, from, func() place {
			n++
			return sqliteAt(filepath.Join(dir, fmt.Sprint(n, ".db")))
		})
	})
}
