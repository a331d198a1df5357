//go:build unix

//nolint:thelper // what takes a T here is part of the test, not a helper

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/modules/postgres"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	pgtest.StopShared()
	os.Exit(code)
}

var schemas atomic.Int64

// newSchema returns the name of a new schema, which is dropped after the test.
func newSchema(t testing.TB) string {
	t.Helper()
	server := pgtest.Shared(t)
	name := fmt.Sprintf("gavel_%d_%d", os.Getpid(), schemas.Add(1))
	t.Cleanup(func() { server.Exec(t, `DROP SCHEMA IF EXISTS `+name+` CASCADE`) })
	return name
}

// spare lists empty schemas with the tables of a store. Creating one takes longer than most tests of the suite.
var spare struct {
	sync.Mutex
	schemas []string
}

// emptySchema returns the name of a schema that does not exist or is empty. Other tests reuse it after this one.
func emptySchema(t testing.TB) string {
	t.Helper()
	server := pgtest.Shared(t)
	spare.Lock()
	defer spare.Unlock()
	name := fmt.Sprintf("gavel_%d_%d", os.Getpid(), schemas.Add(1))
	if n := len(spare.schemas); n > 0 {
		name, spare.schemas = spare.schemas[n-1], spare.schemas[:n-1]
	}
	t.Cleanup(func() {
		server.Exec(t, strings.ReplaceAll(`DO $$ DECLARE name text; BEGIN
			DROP FUNCTION IF EXISTS SCHEMA.poison CASCADE;
			FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'SCHEMA' AND tablename <> 'counter' LOOP
				EXECUTE 'DELETE FROM SCHEMA.' || name;
			END LOOP;
			UPDATE SCHEMA.counter SET last = 0;
		END $$`, "SCHEMA", name))
		spare.Lock()
		defer spare.Unlock()
		spare.schemas = append(spare.schemas, name)
	})
	return name
}

// dropSpare drops the schemas that no test uses any more.
func dropSpare(t testing.TB) {
	t.Helper()
	for _, name := range spare.schemas {
		pgtest.Shared(t).Exec(t, `DROP SCHEMA `+name+` CASCADE`)
	}
	spare.schemas = nil
}

// opened is a store that knows its schema.
type opened struct {
	*postgres.Store
	schema string
}

func openAt(t testing.TB, url, schema string) *opened {
	t.Helper()
	s, err := postgres.Open(context.Background(), postgres.Config{URL: url, Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	return &opened{s, schema}
}

// unsynced opens a store on a database that acknowledges commits before they are on disk. The suite's guarantees do
// not depend on syncing, and the tests of kills do sync.
func unsynced(t testing.TB, schema string) *opened { return openAt(t, pgtest.Shared(t).Fast, schema) }

func TestConformance(t *testing.T) {
	pgtest.Shared(t)
	defer dropSpare(t)
	storetest.Run(t, storetest.Driver{
		Sample: true,
		Open:   func(t testing.TB) store.Store { return unsynced(t, emptySchema(t)) },
		Reopen: func(t testing.TB, closed store.Store) store.Store { return unsynced(t, closed.(*opened).schema) },
		Beside: func(t testing.TB, first store.Store) store.Store { return unsynced(t, first.(*opened).schema) },
		Poison: func(t testing.TB, s store.Store, action string) {
			pgtest.Shared(t).Exec(t, strings.NewReplacer("ACTION", action, "gavel.", s.(*opened).schema+".").Replace(`
				CREATE FUNCTION gavel.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF position('"action":"ACTION"'::bytea IN NEW.body) > 0 THEN RAISE EXCEPTION 'poisoned'; END IF;
					RETURN NEW;
				END $$;
				CREATE TRIGGER poison BEFORE INSERT ON gavel.events FOR EACH ROW EXECUTE FUNCTION gavel.poison()`))
		},
		Stall:        func(t testing.TB, s store.Store) func() { return lock(t, s.(*opened).schema) },
		AwaitStalled: func(t testing.TB, s store.Store) { awaitBlocked(t, s.(*opened).schema) },
	})
}

// awaitBlocked waits until a session of the server is waiting for the lock on a schema's counter.
func awaitBlocked(t testing.TB, schema string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, pgtest.Shared(t).Fast)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for blocked := false; !blocked; {
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE $1)`, "%"+schema+`".counter%`).Scan(&blocked)
		if err != nil {
			t.Fatal("nothing waits for the lock: ", err)
		}
	}
}

// If a write is given up while it waits for a lock, the server has ended it before the caller gets the error, and it
// is not written later.
func TestGivenUpWrite(t *testing.T) {
	schema := emptySchema(t)
	s, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.Shared(t).Fast, Schema: schema, Patience: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	release := sync.OnceFunc(lock(t, schema))
	defer release()
	err = s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`))
	if !errors.Is(err, postgres.ErrUnreachable) || !strings.Contains(err.Error(), "the server ended a statement that took too long") {
		t.Errorf("%v, want the server's word that it ended it", err)
	}
	release()
	lock(t, schema)() // waits for everyone who was in line for the lock
	if _, err := s.Load(t.Context(), storetest.ID(1)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it was written although its caller was told that it failed: %v", err)
	}
}

// lock holds the row that a commit locks last, as another process would.
func lock(t testing.TB, schema string) (release func()) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.Shared(t).Fast)
	if err == nil {
		_, err = conn.Exec(ctx, `BEGIN; SELECT FROM `+schema+`.counter FOR UPDATE`)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
