//go:build unix

//nolint:thelper // what takes a T here is part of the test, not a helper

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/modules/postgres"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// writeUntil makes writers commit to their own instances, alternating between the stores, until stop is closed. It
// returns the state of each instance at its last acknowledged commit.
func writeUntil(t *testing.T, stores []store.Store, writers int, stop <-chan struct{}) map[string]record.Instance {
	var mu sync.Mutex
	acknowledged := map[string]record.Instance{}
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			db := stores[i%len(stores)]
			inst := record.Instance{}
			next := storetest.Start(t, storetest.ID(i), `{}`)
			for n := 0; ; n++ {
				err := db.Commit(context.Background(), next)
				switch {
				case err == nil:
					inst = next.Next
				case errors.Is(err, store.ErrConflict):
					t.Errorf("writer %d, alone at its instance, lost a race: %v", i, err)
					return
				case !errors.Is(err, postgres.ErrUnreachable):
					t.Errorf("writer %d: %v", i, err)
					return
				default: // the caller gets the error and checks the state
					if found, err := load(db, next.Next.ID); err == nil {
						inst = found
					}
				}
				if inst.ID != "" {
					mu.Lock()
					acknowledged[inst.ID] = inst
					mu.Unlock()
					next = storetest.Advance(t, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, n))
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	wg.Wait()
	return acknowledged
}

// load reads an instance and retries while the server is down.
func load(db store.Store, id string) (inst record.Instance, err error) {
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); {
		if inst, err = db.Load(context.Background(), id); !errors.Is(err, postgres.ErrUnreachable) {
			return inst, err
		}
	}
	return inst, err
}

// requireWhole checks that no acknowledged event is missing, that every history verifies, and that positions have no
// gap.
func requireWhole(t *testing.T, db store.Store, acknowledged map[string]record.Instance) (events int) {
	for id, was := range acknowledged {
		inst, err := load(db, id)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if inst.Seq < was.Seq {
			t.Errorf("%s: event %d was acknowledged, and it is at %d", id, was.Seq, inst.Seq)
		}
		if err := record.Verify(db.Events(t.Context(), store.EventQuery{Instance: id})); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
	}
	at := int64(0)
	for ev, err := range db.EventsAfter(t.Context(), store.TailQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if at++; ev.Position != at {
			t.Fatalf("position %d is missing", at)
		}
	}
	return int(at)
}

// No acknowledged commit is lost or made twice, whichever connection is terminated and at whatever moment.
func TestTerminatedBackends(t *testing.T) {
	schema, server := newSchema(t), pgtest.Shared(t)
	stores := []store.Store{openAt(t, server.URL, schema), openAt(t, server.URL, schema)}
	defer stores[0].Close()
	defer stores[1].Close()
	stop := make(chan struct{})
	var ended atomic.Int64
	go func() {
		defer close(stop)
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, server.URL)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(ctx)
		rounds := 20
		if storetest.Long() {
			rounds = 100
		}
		for range rounds {
			var n int64
			var slept any
			if err := conn.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)), pg_sleep(random() * 0.02) FROM pg_stat_activity
				WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle' AND datname = current_database()`).Scan(&n, &slept); err != nil {
				t.Error(err)
				return
			}
			ended.Add(n)
		}
	}()
	acknowledged := writeUntil(t, stores, 8, stop)
	events := requireWhole(t, stores[0], acknowledged)
	if ended.Load() == 0 {
		t.Error("no connection was ended at work: this test shows nothing")
	}
	t.Logf("%d connections ended at work, %d events, none lost", ended.Load(), events)
}

// If the server is killed, everything that it acknowledged is present after its restart, and the store continues
// without being reopened.
func TestKilledServer(t *testing.T) {
	storetest.SkipUnlessLong(t)
	own := pgtest.New(t)
	stores := []store.Store{openAt(t, own.URL, ""), openAt(t, own.URL, "")}
	defer stores[0].Close()
	defer stores[1].Close()
	const rounds = 10
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for range rounds {
			seen, err := stores[0].LastPosition(context.Background())
			for err == nil && t.Context().Err() == nil { // until something was written since the last kill
				last := int64(0)
				if last, err = stores[0].LastPosition(context.Background()); last > seen+20 {
					break
				}
			}
			own.Kill()
			if err := own.Start(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	acknowledged := writeUntil(t, stores, 8, stop)
	t.Logf("%d kills, %d events, none lost", rounds, requireWhole(t, stores[1], acknowledged))
}

// If a deadline of the store expires, as after the process was stopped, this is not reported as the end of the
// caller's request. The end of the caller's request is not counted as a failure of the store.
func TestOwnDeadline(t *testing.T) {
	t.Parallel()
	s, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.Shared(t).URL, Schema: newSchema(t), Patience: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, leaseErr := s.TakeLease(t.Context(), "job", "owner", time.Minute)
	for what, err := range map[string]error{"commit": s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)), "take a lease": leaseErr} {
		if !errors.Is(err, postgres.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	late, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	if err := s.Commit(late, storetest.Start(t, storetest.ID(1), `{}`)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, postgres.ErrUnreachable) {
		t.Errorf("a caller whose time is up: %v", err)
	}
}
