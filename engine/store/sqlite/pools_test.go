package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// Reads that decisions need never wait for a connection held by bulk reads.
func TestBulkReadsHaveConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "gavel.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	first := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for range s.BulkDB().Stats().MaxOpenConnections { // as many bulk reads as possible
		conn, err := s.BulkDB().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	one := storetest.ID(1)
	for what, read := range map[string]func(ctx context.Context) error{
		"an instance":  func(ctx context.Context) error { _, err := s.Load(ctx, one); return err },
		"a key":        func(ctx context.Context) error { _, err := s.ByKey(ctx, "00"); return err },
		"a snapshot":   func(ctx context.Context) error { _, err := s.Snapshot(ctx, one, 1); return err },
		"a definition": func(ctx context.Context) error { _, err := s.Definition(ctx, "none", 0); return err },
		"configs":      func(ctx context.Context) error { _, err := s.JudgeConfigs(ctx, "none"); return err },
		"a review":     func(ctx context.Context) error { _, err := store.FindReview(ctx, s, "none"); return err },
		"refusals": func(ctx context.Context) error {
			_, _, err := s.Refusals(ctx, "none", "none", storetest.Epoch)
			return err
		},
		"a count": func(ctx context.Context) error {
			_, err := store.First(s.Instances(ctx, store.InstanceQuery{Owner: "none", Heads: true}), "none")
			return err
		},
		"last position": func(ctx context.Context) error { _, err := s.LastPosition(ctx); return err },
		"a write":       func(ctx context.Context) error { return s.Commit(ctx, storetest.Refuse(t, first.Next, "go")) },
		"a history": func(ctx context.Context) error {
			for _, err := range s.Events(ctx, store.EventQuery{Instance: one, Kinds: []record.Kind{record.Started}}) {
				return err
			}
			return nil
		},
		"open reviews": func(ctx context.Context) error {
			for _, err := range s.Reviews(ctx, store.ReviewQuery{}) {
				return err
			}
			return nil
		},
	} {
		if err := read(t.Context()); err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Streams read concurrently with writers: while every commit waits for the file, a tail reads to the end.
func TestTailNextToWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gavel.db")
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(0), `{}`)); err != nil {
		t.Fatal(err)
	}
	release := lock(t, path)
	const writers = 100
	var done atomic.Int64
	var all sync.WaitGroup
	for i := range writers {
		next := storetest.Start(t, storetest.ID(i+1), `{}`)
		all.Go(func() {
			if err := s.Commit(context.Background(), next); err != nil {
				t.Error(err)
			}
			done.Add(1)
		})
	}
	for range 100 {
		last, err := s.LastPosition(t.Context())
		if n := storetest.Count(t, s.EventsAfter(store.BulkRead(t.Context()), store.TailQuery{})); err != nil || n != 1 || last != 1 {
			t.Fatalf("a tail reads %d events up to %d, %v", n, last, err)
		}
	}
	if n := done.Load(); n != 0 {
		t.Errorf("%d commits did not wait: this test shows nothing", n)
	}
	release()
	all.Wait()
	if n := storetest.Count(t, s.EventsAfter(t.Context(), store.TailQuery{})); n != writers+1 {
		t.Errorf("then it reads %d events", n)
	}
}
