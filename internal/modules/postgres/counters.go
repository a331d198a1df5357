package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store"
)

// serverNow is the server's time in nanoseconds since 1970.
const serverNow = `(extract(epoch FROM clock_timestamp()) * 1000000000)::int8`

// addCounter adds $2 to the counter $1, unless the sum would exceed $3 (0 for no limit). In it, excluded.ends - $4
// is the time at which the row to insert was created.
const addCounter = `INSERT INTO gavel.counters AS c (name, n, ends) SELECT $1, greatest($2::int8, 0), ` + serverNow + ` + $4::int8 WHERE $3::int8 = 0 OR $2 <= $3
	ON CONFLICT (name) DO UPDATE SET
		n = CASE WHEN c.ends <= excluded.ends - $4 THEN excluded.n ELSE greatest(c.n + $2, 0) END,
		ends = CASE WHEN c.ends <= excluded.ends - $4 THEN excluded.ends ELSE c.ends END
	WHERE $3 = 0 OR $2 + CASE WHEN c.ends <= excluded.ends - $4 THEN 0 ELSE c.n END <= $3
	RETURNING n, ends - ` + serverNow

// pruneCounters deletes more counters than are usually added. It waits for no locks.
const pruneCounters = `DELETE FROM gavel.counters WHERE name IN (
	SELECT name FROM gavel.counters WHERE ends <= ` + serverNow + ` ORDER BY ends LIMIT 4 FOR UPDATE SKIP LOCKED)`

// Count implements store.Store. An addition may count twice if its result was lost with the connection.
func (s *Store) Count(ctx context.Context, all ...store.Addition) (counts []store.Count, err error) {
	err = s.transact(ctx, "count", func(ctx context.Context, tx pgx.Tx) error {
		counts = make([]store.Count, len(all))
		var batch pgx.Batch
		batch.Queue(s.sql(pruneCounters))
		for i, a := range all {
			batch.Queue(s.sql(addCounter), []byte(a.Name), a.Add, a.Max, int64(a.Lifetime)).QueryRow(func(r pgx.Row) error {
				err := r.Scan(&counts[i].N, &counts[i].Left)
				if counts[i].Full = errors.Is(err, pgx.ErrNoRows); counts[i].Full {
					return nil
				}
				return err //nolint:wrapcheck // transact wraps it
			})
		}
		return tx.SendBatch(ctx, &batch).Close() //nolint:wrapcheck // transact wraps it
	})
	return counts, err
}

// Entry implements store.Entries.
func (s *Store) Entry(ctx context.Context, name string, seen int64) (e store.Entry, err error) {
	e.Name = name
	err = s.read(ctx, "the entry "+name, func(ctx context.Context, on handle) error {
		return on.QueryRow(ctx, s.sql(`SELECT version, CASE WHEN version <> $2 THEN body END FROM gavel.entries WHERE name = $1`), name, seen).Scan(&e.Version, &e.Body)
	})
	return e, err
}

// PutEntry implements store.Entries.
func (s *Store) PutEntry(ctx context.Context, e store.Entry) error {
	return s.transact(ctx, "write the entry "+e.Name, func(ctx context.Context, tx pgx.Tx) error {
		query := `UPDATE gavel.entries SET version = $2, body = $3 WHERE name = $1 AND version = $2 - 1`
		if e.Version == 1 {
			query = `INSERT INTO gavel.entries (name, version, body) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING`
		}
		tag, err := tx.Exec(ctx, s.sql(query), e.Name, e.Version, e.Body)
		if err != nil || tag.RowsAffected() == 1 {
			return err //nolint:wrapcheck // transact wraps it
		}
		is := store.Entry{}
		err = tx.QueryRow(ctx, s.sql(`SELECT version, body FROM gavel.entries WHERE name = $1`), e.Name).Scan(&is.Version, &is.Body)
		if err == nil && is.Version == e.Version && bytes.Equal(is.Body, e.Body) {
			return nil // the result of the previous attempt was lost
		}
		return fmt.Errorf("%w: the entry %s has changed in the meantime", store.ErrConflict, e.Name)
	})
}
