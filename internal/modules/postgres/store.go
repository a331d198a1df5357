// Package postgres keeps definitions, instances and events in a PostgreSQL database that any number
// of processes share.
//
// It promises that a write that returned nil is durable as far as the server's commits are, that
// the seq check decides between processes, and that positions are in the order of commits, without
// gaps, and found by every process as soon as they are durable. Writes of one process go through
// one goroutine, which commits whatever queued up during the commit before as one transaction. What
// the server undid (a deadlock, a lost connection) is tried again; where a connection was lost before
// the answer, the events say whether they were written.
//
// It keeps no state in a session, so it works behind a proxy that gives each transaction another
// one. It must never interpret what it keeps (hashes and folds live in package record), put a
// password into an error, or hold a connection between two calls.
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

// DefaultSchema is where the tables are.
const DefaultSchema = "gavel"

// Config configures Open.
type Config struct {
	// URL is the database's: postgres://USER@HOST/DATABASE, or a list of key=value. What it leaves
	// out comes from the PG variables of the environment, the password file included.
	URL string
	// Schema has the tables; "" is DefaultSchema. It is made where it is missing.
	Schema string
	// MustExist refuses a schema without a store, instead of making one (ErrNoStore).
	MustExist bool
	// Logger gets warnings; nil discards them.
	Logger *slog.Logger
	// Patience bounds how long a write is tried again while the server is away; 0 is 10 s.
	Patience time.Duration
}

// The most connections of one process: a read never waits for a write, nor for bulk reads.
const (
	writeConns = 2
	readConns  = 8
	bulkConns  = 4
)

// readTimeout bounds a read: a caller who has gone does not interrupt it, which would cost the
// connection.
const readTimeout = 30 * time.Second

// Store is a store.Store in a PostgreSQL database.
type Store struct {
	log      *slog.Logger
	schema   string // quoted, with a dot
	patience time.Duration

	reads, bulk, writes *pgxpool.Pool
	writer              *writer
	waker               *waker                                 // nil where nothing can be written
	direct              *pgx.ConnConfig                        // of a session that no proxy hands to others; nil elsewhere
	failures            [len(failureClasses) + 1]atomic.Uint64 // the last of others
	full                atomic.Bool                            // a write found the disk full, and none has shown since that it is not

	mu     sync.RWMutex // held while entering, and by Close while it shuts the door
	closed bool
	inside sync.WaitGroup // calls in progress
	once   sync.Once
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Entries = (*Store)(nil)
	_ store.Waker   = (*Store)(nil)
)

// Open opens the store in a database, or makes its tables. Errors: ErrBadURL, ErrNoDatabase, ErrDenied,
// ErrOldServer, ErrForeignTables, driver.ErrNoStore, ErrUnfinished, ErrUnreachable, store.ErrOtherSchema.
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

// openMarked opens a schema that has a mark, or gives it one.
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

// OpenToRead opens an existing store so that nothing can be written: each write ends with
// ErrReadOnly. The server may be a standby. Errors: those of Open.
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

// openFailure releases a store that could not be opened, and says why.
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

// sql puts the schema into a query, in which it is called gavel.
func (s *Store) sql(query string) string { return strings.ReplaceAll(query, "gavel.", s.schema) }

// enter notes a call in progress, so that Close waits for it.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return store.ErrClosed
	}
	s.inside.Add(1)
	return nil
}

// Close waits for the calls in progress, writes what is queued and releases everything. It is
// idempotent, and every call returns when it is done.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		if s.writer != nil {
			close(s.writer.hurrying)
		}
		s.inside.Wait()
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

// handle is what queries are made on.
type handle interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// read takes a read through a pool. It looks at the context before and not during it. A connection
// that was lost is none of the caller's: the read is made once more.
func (s *Store) read(ctx context.Context, what string, do func(ctx context.Context, on handle) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.inside.Done()
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

// queryAll reads all rows of a query, which is planned for its values each time: what suits a
// workflow with ten instances takes seconds for one with a million.
func queryAll[T any](ctx context.Context, on handle, scan func(pgx.Row) (T, error), query string, args ...any) ([]T, error) {
	found, err := on.Query(ctx, query, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
	if err != nil {
		return nil, err //nolint:wrapcheck // read wraps it
	}
	return pgx.CollectRows(found, func(r pgx.CollectableRow) (T, error) { return scan(r) }) //nolint:wrapcheck // read wraps it
}
