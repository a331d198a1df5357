package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
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
		_, err := tx.Exec(ctx, `SELECT pg_current_xact_id()`) // refused where the server is read-only
		return err                                            //nolint:wrapcheck // transact wraps it
	})
}
