package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gavel-mcp/gavel/engine/store"
)

// IsEmpty reports whether nothing was ever written to the store.
func (s *Store) IsEmpty(ctx context.Context) (empty bool, err error) {
	err = s.read(ctx, "whether the store is empty", func(ctx context.Context, on handle) error {
		return on.QueryRow(ctx, s.sql(`SELECT last = 0 AND NOT EXISTS (SELECT FROM gavel.definitions) AND NOT EXISTS (SELECT FROM gavel.judge_configs)
			AND NOT EXISTS (SELECT FROM gavel.anchors) FROM gavel.counter`)).Scan(&empty)
	})
	return empty, err
}

// CheckWritable returns the reason why the store cannot be written, or nil.
func (s *Store) CheckWritable(ctx context.Context) error {
	err := s.transact(ctx, "write to the store", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql(`SELECT FROM gavel.counter FOR KEY SHARE`)) // a write that no commit has to wait for
		if err != nil || !s.full.Load() {
			return err //nolint:wrapcheck // transact wraps it
		}
		return s.checkDiskSpace(ctx, tx)
	})
	if errors.Is(err, ErrDenied) && s.full.CompareAndSwap(true, false) {
		return s.CheckWritable(ctx) // without the right to create temporary tables, only a write can find space
	}
	return err
}

// checkDiskSpace checks for free disk space after a write failed for lack of it. A write within existing pages needs no
// space and would prove nothing, so findRoom writes 64 KB to a table that is dropped with the transaction.
func (s *Store) checkDiskSpace(ctx context.Context, tx pgx.Tx) error {
	for _, query := range []string{
		`SET LOCAL temp_tablespaces = ''`, // in the tablespace of the database's tables
		`CREATE TEMPORARY TABLE gavel_room ON COMMIT DROP AS SELECT repeat(md5(n::text), 60) FROM generate_series(1, 32) AS n`,
	} {
		if _, err := tx.Exec(ctx, query); err != nil {
			return err //nolint:wrapcheck // transact wraps it
		}
	}
	s.full.Store(false)
	return nil
}

// isFull reports whether the server's disk is full.
func isFull(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "53100"
}

// failureClasses maps errors to the classes by which failed calls are counted. All other errors are classOther.
var failureClasses = [...]struct {
	class string
	err   error
}{{"unreachable", ErrUnreachable}, {"denied", ErrDenied}, {"damaged", store.ErrDamaged}}

const classOther = "other"

// fail classifies and counts the error of a call.
func (s *Store) fail(err error) error {
	if isFull(err) {
		s.full.Store(true)
	}
	err = classify(err)
	if isAny(err, context.Canceled, context.DeadlineExceeded, store.ErrClosed, ErrReadOnly) {
		return err // not a failure of the store
	}
	class := 0
	for class < len(failureClasses) && !errors.Is(err, failureClasses[class].err) {
		class++
	}
	s.failures[class].Add(1)
	return err
}

// Stats returns the counters of this process.
func (s *Store) Stats() store.Stats {
	stats := store.Stats{Failures: map[string]uint64{classOther: s.failures[len(failureClasses)].Load()}}
	for i, c := range failureClasses {
		stats.Failures[c.class] = s.failures[i].Load()
	}
	if w := s.writer; w != nil {
		stats.Batches, stats.Writes, stats.Queued = w.groups.Load(), w.commits.Load(), len(w.queue)
	}
	return stats
}
