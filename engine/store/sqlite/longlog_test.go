package sqlite_test

import (
	"context"
	"database/sql"
	"flag"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

var realLog = flag.Bool("log.real", false, "let TestLogStaysShortUnderSteadyReading write with the real bounds, most of a gigabyte")

// The log stays within its bound under continuous reads by streams and clients. None of them holds it for long, but
// at any moment one does.
func TestLogStaysShortUnderSteadyReading(t *testing.T) {
	pages, volume, clients, atOnce := 130, int64(5<<20), 20, 5 // a thirtieth of the real bounds; no read takes longer than the writer waits
	switch {
	case *realLog:
		pages, volume, clients, atOnce = 4000, 256<<20, 100, 100 // the log receives several times as much
	case storetest.Long():
		pages, volume, clients, atOnce = 200, 24<<20, 100, 100
	}
	storetest.UseDisk(t) // the bound applies to a log whose writers wait for syncs
	// A quarter above the limit, as 80 MB are for 64 MB. Half a limit more for writes during a sync on a slow disk,
	// which takes just as long at a thirtieth of the size. Two groups of eight commits more, whose size is not scaled
	// down either.
	limit := int64(pages) * 4 * pageBytes
	bound := limit*80/64 + limit/2 + 2*8*8*pageBytes
	if *realLog {
		bound = limit * 80 / 64
	}
	path := newPath(t)
	s, err := sqlite.OpenCheckpointing(t.Context(), sqlite.Foreground(sqlite.Config{Path: path}), pages, 0) // indexing batches do not scale down
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	big := `{"a":"` + strings.Repeat("x", 8<<10) + `"}`
	for n := range 300 {
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(n), big)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	for range 24 { // streams: consecutive pages of events
		readers.Go(func() {
			for ctx.Err() == nil {
				var last int64
				for e, err := range s.EventsAfter(store.BulkRead(ctx), store.TailQuery{After: last, Limit: atOnce}) {
					if err != nil {
						break
					}
					last = e.Position
				}
			}
		})
	}
	for n := range clients {
		readers.Go(func() {
			for i := n; ctx.Err() == nil; i++ {
				if _, err := s.Load(ctx, storetest.ID(i%300)); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var written, longest atomic.Int64
	for w := range 8 {
		writers.Go(func() {
			for i := 0; written.Load() < volume; i++ {
				if err := s.Commit(context.Background(), storetest.Start(t, storetest.ID(1<<20*(w+1)+i), big)); err != nil {
					t.Error(err)
					return
				}
				written.Add(int64(4 * pageBytes))
				for size := logBytes(t, path); ; {
					if was := longest.Load(); size <= was || longest.CompareAndSwap(was, size) {
						break
					}
				}
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
	t.Logf("the longest log: %.1f MiB, bound %.1f MiB, %d tries failed", float64(longest.Load())/(1<<20), float64(bound)/(1<<20), s.Stats().LogBlocked)
	if longest.Load() > bound {
		t.Errorf("the log grew to %d bytes, want at most %d", longest.Load(), bound)
	}
}

// A reader that does not end is waited for only occasionally, and is counted and logged.
func TestReaderThatStaysIsReported(t *testing.T) {
	t.Parallel()
	var warned strings.Builder
	s, err := sqlite.OpenCheckpointing(t.Context(), sqlite.Config{Path: newPath(t), Logger: slog.New(slog.NewTextHandler(&warned, nil))}, 50, 0)
	if err != nil {
		t.Fatal(err)
	}
	big := `{"a":"` + strings.Repeat("x", 30<<10) + `"}`
	n := 0
	write := func() {
		n++
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(n), big)); err != nil {
			t.Fatal(err)
		}
	}
	write()
	reader, err := s.ReaderDB().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.QueryRow("SELECT count(*) FROM instances").Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	until(t, "a blocked log", write, func() bool { return s.Stats().LogBlocked > 20 })
	blocked := time.Since(start)
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := warned.String(); strings.Count(got, "write-ahead log is too long") != 1 {
		t.Errorf("want one warning, got %q", got)
	}
	t.Logf("%s for %d writes", blocked, n)
	if want := 21; n < want {
		t.Errorf("%d writes between %d tries", n, want)
	}
}
