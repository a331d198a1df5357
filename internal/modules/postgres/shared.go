package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// leaseHeld returns a query that finds a lease that has not ended, and keeps others from taking it until the
// transaction ends.
func leaseHeld(name, number string) string {
	return `SELECT FROM gavel.leases WHERE name = ` + name + ` AND number = ` + number + ` AND ends > ` + serverNow + ` FOR SHARE`
}

// checkLease returns an error if a lease has ended; nil is always valid.
func (s *Store) checkLease(ctx context.Context, tx pgx.Tx, l *store.Lease) error {
	if l == nil {
		return nil
	}
	return execOne(ctx, tx, fmt.Errorf("%w: %s, number %d", store.ErrLeaseLost, l.Name, l.Number), s.sql(leaseHeld("$1", "$2")), []byte(l.Name), l.Number)
}

// TakeLease implements store.Store.
func (s *Store) TakeLease(ctx context.Context, name, owner string, d time.Duration) (l store.Lease, err error) {
	// The first number is the time, because a dropped lease of that name may have had a lower number.
	const take = `INSERT INTO gavel.leases AS l (name, owner, number, ends) VALUES ($1, $2, ` + serverNow + `, ` + serverNow + ` + $3)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, ends = ` + serverNow + ` + $3, number = l.number + CASE WHEN l.ends > ` + serverNow + ` THEN 0 ELSE 1 END
			WHERE l.owner = excluded.owner OR l.ends <= ` + serverNow + `
		RETURNING owner, number, ends`
	err = s.transact(ctx, "take a lease", func(ctx context.Context, tx pgx.Tx) error {
		err := scanLease(tx.QueryRow(ctx, s.sql(take), []byte(name), []byte(owner), int64(d)), &l)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if err := scanLease(tx.QueryRow(ctx, s.sql(`SELECT owner, number, ends FROM gavel.leases WHERE name = $1`), []byte(name)), &l); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s", store.ErrLeaseTaken, name)
	})
	l.Name = name
	return l, err
}

func scanLease(r pgx.Row, l *store.Lease) error {
	var owner []byte
	var ends int64
	err := r.Scan(&owner, &l.Number, &ends)
	l.Owner, l.Ends = string(owner), rows.TimeOf(ends)
	return err //nolint:wrapcheck // transact wraps it
}

// exec writes with one statement in its own transaction. If refused is not nil, exec returns it when the statement
// changes no row.
func (s *Store) exec(ctx context.Context, what string, lease *store.Lease, refused error, query string, args ...any) error {
	return s.transact(ctx, what, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.checkLease(ctx, tx, lease); err != nil {
			return err
		}
		if refused != nil {
			return execOne(ctx, tx, refused, s.sql(query), args...)
		}
		_, err := tx.Exec(ctx, s.sql(query), args...)
		return err //nolint:wrapcheck // transact wraps it
	})
}

// EndLease implements store.Store.
func (s *Store) EndLease(ctx context.Context, l store.Lease) error {
	return s.exec(ctx, "end a lease", nil, nil, `UPDATE gavel.leases SET ends = 0 WHERE name = $1 AND number = $2`, []byte(l.Name), l.Number)
}

// DropLeases implements store.Store.
func (s *Store) DropLeases(ctx context.Context, prefix string, ago time.Duration) error {
	return s.exec(ctx, "drop leases", nil, nil, `DELETE FROM gavel.leases WHERE substr(name, 1, $2::int4) = $1 AND ends < `+serverNow+` - $3`, []byte(prefix), len(prefix), int64(ago))
}

// MoveCursor implements store.Store.
func (s *Store) MoveCursor(ctx context.Context, c store.Cursor, from int64, lease *store.Lease) error {
	if err := c.Check(); err != nil {
		return err //nolint:wrapcheck // an error of the interface
	}
	query, args := `INSERT INTO gavel.cursors (name, position, filter, made_at, moved_at) SELECT $1, $2, $3, t, t FROM (SELECT `+serverNow+` AS t) AS at
		ON CONFLICT (name) DO NOTHING`, []any{[]byte(c.Name), c.Position, []byte(c.Filter)}
	if from != store.NoCursor {
		query, args = `UPDATE gavel.cursors SET position = $2, filter = $3, moved_at = `+serverNow+` WHERE name = $1 AND position = $4`, append(args, from)
	}
	return s.exec(ctx, "move a cursor", lease, fmt.Errorf("%w: the cursor %s is not at %d", store.ErrConflict, c.Name, from), query, args...)
}

// Cursors implements store.Store.
func (s *Store) Cursors(ctx context.Context) (all []store.Cursor, err error) {
	err = s.read(ctx, "cursors", func(ctx context.Context, on handle) (err error) {
		all, err = queryAll(ctx, on, scanCursor, s.sql(`SELECT name, position, filter, made_at, moved_at FROM gavel.cursors ORDER BY name`))
		return err
	})
	return all, err
}

func scanCursor(r pgx.Row) (c store.Cursor, err error) {
	var name, filter []byte
	var made, moved int64
	err = r.Scan(&name, &c.Position, &filter, &made, &moved)
	c.Name, c.Filter, c.MadeAt, c.MovedAt = string(name), string(filter), rows.TimeOf(made), rows.TimeOf(moved)
	return c, err //nolint:wrapcheck // read wraps it
}

// DropCursor implements store.Store.
func (s *Store) DropCursor(ctx context.Context, name string) error {
	return s.exec(ctx, "drop a cursor", nil, fmt.Errorf("%w: cursor %s", store.ErrNotFound, name), `DELETE FROM gavel.cursors WHERE name = $1`, []byte(name))
}

// PutDataKey implements store.Store. Old versions of the row remain in the server's files for a while.
func (s *Store) PutDataKey(ctx context.Context, k store.DataKey, was *store.DataKey) error {
	if err := k.CheckReplaces(was); err != nil {
		return err //nolint:wrapcheck // an error of the interface
	}
	query, args := `INSERT INTO gavel.data_keys (instance, number, wrapped, under, made_at, destroyed_at) SELECT $1, $2, $3, $4, $5, $6
		WHERE $2 = 1 + (SELECT coalesce(max(number), 0) FROM gavel.data_keys WHERE instance = $1) ON CONFLICT DO NOTHING`,
		[]any{k.Instance, k.Number, rows.OrEmpty(k.Wrapped), k.Under, k.MadeAt.UnixNano(), rows.NanosOf(k.DestroyedAt)}
	if was != nil {
		query = `UPDATE gavel.data_keys SET wrapped = CASE WHEN $6 = $7 THEN $3 ELSE decode(repeat('00', length(wrapped)), 'hex') END, under = $4, made_at = $5, destroyed_at = $6
			WHERE instance = $1 AND number = $2 AND (wrapped = $8 OR destroyed_at <> $7) AND under = $9 AND made_at = $10 AND destroyed_at = $11`
		args = append(args, rows.NanosOf(time.Time{}), rows.OrEmpty(was.Wrapped), was.Under, was.MadeAt.UnixNano(), rows.NanosOf(was.DestroyedAt))
	}
	return s.exec(ctx, "keep a data key", nil, fmt.Errorf("%w: data key %d of %s is not as it was", store.ErrConflict, k.Number, k.Instance), query, args...)
}

// DataKey implements store.Store.
func (s *Store) DataKey(ctx context.Context, instance string, number int) (k store.DataKey, err error) {
	err = s.read(ctx, fmt.Sprintf("data key %d of %s", number, instance), func(ctx context.Context, on handle) (err error) {
		k, err = scanDataKey(on.QueryRow(ctx, s.sql(`SELECT `+dataKeyColumns+` FROM gavel.data_keys WHERE instance = $1 AND (number = $2 OR $2 = 0)
			ORDER BY number DESC LIMIT 1`), textOrNull(instance), number))
		return err
	})
	return k, err
}

const dataKeyColumns = `instance, number, wrapped, under, made_at, destroyed_at`

func scanDataKey(r pgx.Row) (k store.DataKey, err error) {
	var made, destroyed int64
	err = r.Scan(&k.Instance, &k.Number, &k.Wrapped, &k.Under, &made, &destroyed)
	k.MadeAt = rows.TimeOf(made)
	if destroyed != rows.NanosOf(time.Time{}) {
		k.DestroyedAt, k.Wrapped = rows.TimeOf(destroyed), nil
	}
	return k, err //nolint:wrapcheck // read wraps it
}

// DataKeys implements store.Store.
func (s *Store) DataKeys(ctx context.Context, instance string, number int) iter.Seq2[store.DataKey, error] {
	after := store.DataKey{Instance: instance, Number: number}
	return rows.Pages(ctx, 0, headsPage, func(ctx context.Context, last *store.DataKey, n int) (page []store.DataKey, err error) {
		if last == nil {
			last = &after
		}
		err = s.read(ctx, "data keys", func(ctx context.Context, on handle) (err error) {
			page, err = queryAll(ctx, on, scanDataKey, s.sql(`SELECT `+dataKeyColumns+` FROM gavel.data_keys
				WHERE (instance, number) > ($1, $2) ORDER BY instance, number LIMIT $3`), last.Instance, last.Number, n)
			return err
		})
		return page, err
	})
}
