//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/modules/postgres"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// TestConformanceBehindAProxy runs the suite behind PgBouncer, which gives each transaction another session.
func TestConformanceBehindAProxy(t *testing.T) {
	storetest.SkipUnlessLong(t)
	at := pgtest.StartProxy(t, pgtest.Shared(t).Fast)
	defer dropSpare(t)
	reopen := func(t testing.TB, s store.Store) store.Store {
		schema := s.(unheard).schema
		return unheard{openAt(t, at, schema), schema}
	}
	storetest.Run(t, storetest.Driver{
		Open: func(t testing.TB) store.Store {
			schema := emptySchema(t)
			return unheard{openAt(t, at, schema), schema}
		},
		Reopen: reopen, Beside: reopen, Sample: true,
	})
}

// unheard is a store without store.Waker, because nothing is received behind a proxy.
type unheard struct {
	store.Store
	schema string
}

// TestInspectGuestBehindAProxy checks that a proxy is recognised, and so is a database that it does not have.
func TestInspectGuestBehindAProxy(t *testing.T) {
	t.Parallel()
	at := pgtest.StartProxy(t, pgtest.Shared(t).NewDatabase(t), "postgres")
	if g, err := postgres.InspectGuest(t.Context(), at, "guest", "versions", "postgres"); err != nil || !g.Proxied {
		t.Errorf("%+v, %v", g, err)
	}
	if _, err := postgres.InspectGuest(t.Context(), at, "guest", "versions", "template1"); !errors.Is(err, postgres.ErrOtherDatabase) {
		t.Errorf("a database that the proxy does not have: %v", err)
	}
}

// TestCancelledStatementsLeaveTheProxyRunning cancels statements at their deadline, many at a time.
func TestCancelledStatementsLeaveTheProxyRunning(t *testing.T) {
	t.Parallel()
	storetest.SkipUnlessLong(t)
	cfg, err := pgxpool.ParseConfig(pgtest.StartProxy(t, pgtest.Shared(t).NewDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns, cfg.ConnConfig.DefaultQueryExecMode = 16, pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), postgres.CancelOnServer(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var all sync.WaitGroup
	for range cfg.MaxConns {
		all.Go(func() {
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				_, _ = pool.Exec(ctx, `SELECT pg_sleep(10)`)
				cancel()
			}
		})
	}
	all.Wait()
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("after cancelled statements: %v", err)
	}
}
