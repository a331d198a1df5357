// Package postgres keeps definitions, instances and events in a PostgreSQL database that any number of processes
// share.
//
// It guarantees:
//
//   - A write that returned nil is as durable as the server's commits.
//   - If several processes write an instance at the same time, the check of its seq lets only one succeed.
//   - Positions are in commit order, without gaps, and visible to every process as soon as they are durable.
//   - Transactions that the server undid (a deadlock, a lost connection) are retried. If a connection was lost before the
//     result, the events show whether they were written.
//
// A single goroutine makes all commits of a process. It commits everything that was queued during the previous commit
// as one transaction.
//
// It keeps no session state, so that it works behind a proxy that may run each transaction in a different session.
// It must never:
//
//   - interpret what it stores (hashing and folding are the task of package record)
//   - put a password into an error
//   - hold a connection between two calls
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gavel-mcp/gavel/engine/store"
)

// DefaultSchema is the default schema of the tables.
const DefaultSchema = "gavel"

// Config configures Open.
type Config struct {
	// URL identifies the database: postgres://USER@HOST/DATABASE, or a list of key=value pairs. Missing parts come
	// from the PG environment variables and the password file.
	URL string
	// Schema contains the tables; "" means DefaultSchema. It is created if it is missing.
	Schema string
	// MustExist makes Open return ErrNoStore, instead of creating a store, if the schema has none.
	MustExist bool
	// Logger receives warnings; nil discards them.
	Logger *slog.Logger
	// Patience limits how long a write is retried while the server is down; 0 means 10 s.
	Patience time.Duration
}

// Maximum connections of a process. Reads never wait for writes or for bulk reads.
const (
	writeConns = 2
	readConns  = 8
	bulkConns  = 4
)

// readTimeout limits a read. A read is not interrupted when its caller leaves, because that would cost the
// connection.
const readTimeout = 30 * time.Second

// Store is a store.Store in a PostgreSQL database.
type Store struct {
	log      *slog.Logger
	schema   string // quoted, with a dot
	patience time.Duration

	reads, bulk, writes *pgxpool.Pool
	writer              *writer
	waker               *waker                                 // nil if the store is read-only
	direct              *pgx.ConnConfig                        // for sessions that no proxy shares; nil behind a proxy
	failures            [len(failureClasses) + 1]atomic.Uint64 // the last counts other errors
	full                atomic.Bool                            // a write found the disk full; CheckWritable resets it

	mu          sync.RWMutex // held by enter, and by Close while it sets closed
	closed      bool
	activeCalls sync.WaitGroup // calls in progress
	once        sync.Once
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Entries = (*Store)(nil)
	_ store.Waker   = (*Store)(nil)
)

// Open opens the store in a database, or creates its tables. Errors: ErrBadURL, ErrNoDatabase, ErrDenied,
// ErrOldServer, ErrForeignTables, driver.ErrNoStore, driver.ErrUnfinished, ErrUnreachable, store.ErrOtherSchema.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := openMarked(ctx, cfg, schemaMark)
	if err != nil {
		return nil, err
	}
	s.writer = newWriter(s)
	go s.writer.run()
	s.startWaker(s.direct)
	return s, nil
}

// openMarked opens a schema with a mark, or marks a new one.
func openMarked(ctx context.Context, cfg Config, mark string) (*Store, error) {
	s := newStore(&cfg)
	config, err := readConfig(cfg.URL)
	if err == nil {
		if config.ConnConfig.ValidateConnect == nil {
			config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
		}
		err = s.openPools(ctx, config, pools{{&s.writes, writeConns}, {&s.reads, readConns}, {&s.bulk, bulkConns}})
	}
	if err == nil {
		err = createSchema(ctx, s.writes, cfg.Schema, mark, cfg.MustExist)
	}
	return s, s.openFailure(err)
}

// OpenToRead opens an existing store for reading; every write fails with ErrReadOnly. The server may be a standby.
// Errors: those of Open.
func OpenToRead(ctx context.Context, cfg Config) (*Store, error) {
	s := newStore(&cfg)
	config, err := readConfig(cfg.URL)
	if err == nil {
		err = s.openPools(ctx, config, pools{{&s.reads, readConns}, {&s.bulk, bulkConns}})
	}
	if err == nil {
		err = checkSchema(ctx, s.reads, cfg.Schema)
	}
	return s, s.openFailure(err)
}

func newStore(cfg *Config) *Store {
	cfg.Schema = cmp.Or(cfg.Schema, DefaultSchema)
	return &Store{
		log:      cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		schema:   pgx.Identifier{cfg.Schema}.Sanitize() + ".",
		patience: cmp.Or(cfg.Patience, 10*time.Second),
	}
}

// openFailure releases a store that could not be opened, and returns the reason.
func (s *Store) openFailure(err error) error {
	if err == nil {
		return nil
	}
	s.closePools()
	return fmt.Errorf("open the store: %w", classify(err))
}

type pools []struct {
	to   **pgxpool.Pool
	most int32
}

func (s *Store) openPools(ctx context.Context, config *pgxpool.Config, all pools) error {
	err := prepareWhereDirect(ctx, config)
	if config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		s.direct = config.ConnConfig.Copy()
	}
	for _, p := range all {
		if err != nil {
			break
		}
		its := config
		if p.to == &s.writes {
			its = cancelOnServer(config)
		}
		*p.to, err = newPool(ctx, its, p.most)
	}
	return err
}

// sql replaces the schema name gavel in a query by the store's schema.
func (s *Store) sql(query string) string { return strings.ReplaceAll(query, "gavel.", s.schema) }

// enter registers a call in progress, so that Close waits for it.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return store.ErrClosed
	}
	s.activeCalls.Add(1)
	return nil
}

// Close waits for the calls in progress, writes what is queued and releases all resources. It is idempotent, and
// every call returns only when closing is complete.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		if s.writer != nil {
			close(s.writer.urgent)
		}
		s.activeCalls.Wait()
		s.writer.stop()
		s.waker.stop()
		s.closePools()
	})
	return nil
}

func (s *Store) closePools() {
	for _, p := range []*pgxpool.Pool{s.writes, s.reads, s.bulk} {
		if p != nil {
			p.Close()
		}
	}
}

// handle is implemented by everything that runs queries.
type handle interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// read runs a read through a pool. It checks the context only beforehand. If the connection was lost, it retries the
// read once.
func (s *Store) read(ctx context.Context, what string, do func(ctx context.Context, on handle) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.activeCalls.Done()
	pool := s.reads
	if store.IsBulkRead(ctx) {
		pool = s.bulk
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	err := do(ctx, pool)
	if isLost(err) {
		err = do(ctx, pool)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: %s", store.ErrNotFound, what)
	}
	return fmt.Errorf("read %s: %w", what, s.fail(err))
}

// queryAll reads all rows of a query. The query is planned for its values each time: a plan that suits a workflow
// with ten instances takes seconds for one with a million.
func queryAll[T any](ctx context.Context, on handle, scan func(pgx.Row) (T, error), query string, args ...any) ([]T, error) {
	found, err := on.Query(ctx, query, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
	if err != nil {
		return nil, err //nolint:wrapcheck // read wraps it
	}
	return pgx.CollectRows(found, func(r pgx.CollectableRow) (T, error) { return scan(r) }) //nolint:wrapcheck // read wraps it
}
