package postgres

import (
	"context"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// AddDeadLetter implements store.Store.
func (s *Store) AddDeadLetter(ctx context.Context, l store.DeadLetter, lease *store.Lease) error {
	if err := l.Check(); err != nil {
		return err //nolint:wrapcheck // an error of the interface
	}
	return s.exec(ctx, "add a dead letter", lease, nil, `INSERT INTO gavel.dead_letters (cursor, position, instance, seq, tries, cause, at) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (cursor, position) DO UPDATE SET instance = excluded.instance, seq = excluded.seq, tries = excluded.tries, cause = excluded.cause, at = excluded.at`,
		[]byte(l.Cursor), l.Position, l.Instance, l.Seq, l.Tries, []byte(l.Cause), l.At.UnixNano())
}

func scanDeadLetter(r pgx.Row) (l store.DeadLetter, err error) {
	var cursor, cause []byte
	var at int64
	err = r.Scan(&cursor, &l.Position, &l.Instance, &l.Seq, &l.Tries, &cause, &at)
	l.Cursor, l.Cause, l.At = string(cursor), string(cause), rows.TimeOf(at)
	return l, err //nolint:wrapcheck // read wraps it
}

// DeadLetters implements store.Store.
func (s *Store) DeadLetters(ctx context.Context, cursor string) iter.Seq2[store.DeadLetter, error] {
	after := store.DeadLetter{Cursor: cursor}
	return rows.Pages(ctx, 0, headsPage, func(ctx context.Context, last *store.DeadLetter, n int) (page []store.DeadLetter, err error) {
		if last == nil {
			last = &after
		}
		err = s.read(ctx, "dead letters", func(ctx context.Context, on handle) (err error) {
			page, err = queryAll(ctx, on, scanDeadLetter, s.sql(`SELECT cursor, position, instance, seq, tries, cause, at FROM gavel.dead_letters
				WHERE (cursor, position) > ($1, $2) AND ($3 = ''::bytea OR cursor = $3) ORDER BY cursor, position LIMIT $4`),
				[]byte(last.Cursor), last.Position, []byte(cursor), n)
			return err
		})
		return page, err
	})
}

// DropDeadLetter implements store.Store.
func (s *Store) DropDeadLetter(ctx context.Context, cursor string, position int64) error {
	return s.exec(ctx, "drop a dead letter", nil, fmt.Errorf("%w: dead letter %d of %s", store.ErrNotFound, position, cursor),
		`DELETE FROM gavel.dead_letters WHERE cursor = $1 AND position = $2`, []byte(cursor), position)
}
