package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

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

// CheckWritable reports why nothing can be written now; nil when something can.
func (s *Store) CheckWritable(ctx context.Context) error {
	return s.transact(ctx, "write to the store", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql(`SELECT FROM gavel.counter FOR KEY SHARE`)) // a write, which no commit waits for
		return err                                                               //nolint:wrapcheck // transact wraps it
	})
}

// failureClasses lists why a call to the store failed, as it is counted, but for what is none of
// these errors.
var failureClasses = [...]struct {
	class string
	err   error
}{{"unreachable", ErrUnreachable}, {"denied", ErrDenied}, {"damaged", store.ErrDamaged}}

const classOther = "other"

// fail classifies and counts what made a call fail.
func (s *Store) fail(err error) error {
	err = classify(err)
	if isAny(err, context.Canceled, context.DeadlineExceeded, store.ErrClosed, ErrReadOnly) {
		return err // it says nothing about the store
	}
	class := 0
	for class < len(failureClasses) && !errors.Is(err, failureClasses[class].err) {
		class++
	}
	s.failures[class].Add(1)
	return err
}

// Stats returns the figures of this process.
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
