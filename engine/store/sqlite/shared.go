package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// sharedStatements are the writer's statements for data that processes share.
type sharedStatements struct {
	leaseHeld, lease, putLease, endLease *sql.Stmt
	dropLeases                           *sql.Stmt
	addCursor, moveCursor, dropCursor    *sql.Stmt
	addDataKey, setDataKey               *sql.Stmt
	addDeadLetter, dropDeadLetter        *sql.Stmt
}

func (s *sharedStatements) all() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&s.leaseHeld: `SELECT 1 FROM leases WHERE name = ? AND number = ? AND ends > ?`,
		&s.lease:     `SELECT owner, number, ends FROM leases WHERE name = ?`,
		&s.putLease: `INSERT INTO leases (name, owner, number, ends) VALUES (?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, number = excluded.number, ends = excluded.ends`,
		&s.dropLeases: `DELETE FROM leases WHERE substr(CAST(name AS BLOB), 1, length(?1)) = ?1 AND ends < ?2`,
		&s.endLease:   `UPDATE leases SET ends = 0 WHERE name = ? AND number = ?`,
		&s.addCursor:  `INSERT INTO cursors (name, position, filter, made_at, moved_at) VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (name) DO NOTHING`,
		&s.moveCursor: `UPDATE cursors SET position = ?2, filter = ?3, moved_at = ?4 WHERE name = ?1 AND position = ?5`,
		&s.dropCursor: `DELETE FROM cursors WHERE name = ?`,
		&s.addDeadLetter: `INSERT INTO dead_letters (` + deadLetterColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (cursor, position)
			DO UPDATE SET instance = excluded.instance, seq = excluded.seq, tries = excluded.tries, cause = excluded.cause, at = excluded.at`,
		&s.dropDeadLetter: `DELETE FROM dead_letters WHERE cursor = ? AND position = ?`,
		&s.addDataKey: `INSERT INTO data_keys (instance, number, wrapped, under, made_at, destroyed_at) SELECT ?1, ?2, ?3, ?4, ?5, ?6
			WHERE ?2 = 1 + (SELECT coalesce(max(number), 0) FROM data_keys WHERE instance = ?1)`,
		&s.setDataKey: `UPDATE data_keys SET wrapped = CASE WHEN ?6 = ?7 THEN ?3 ELSE zeroblob(length(wrapped)) END, under = ?4, made_at = ?5, destroyed_at = ?6
			WHERE instance = ?1 AND number = ?2 AND (wrapped = ?8 OR destroyed_at <> ?7) AND under = ?9 AND made_at = ?10 AND destroyed_at = ?11`,
	}
}

// checkLease returns an error if a lease has ended; nil is always valid.
func (s *statements) checkLease(l *store.Lease) error {
	if l == nil {
		return nil
	}
	lost := fmt.Errorf("%w: %s, number %d", store.ErrLeaseLost, l.Name, l.Number)
	var one int
	err := s.leaseHeld.QueryRowContext(context.Background(), l.Name, l.Number, time.Now().UnixNano()).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return lost
	}
	return err
}

// TakeLease implements store.Store. All processes run on one machine, so its clock is the store's clock.
func (s *Store) TakeLease(ctx context.Context, name, owner string, d time.Duration) (l store.Lease, err error) {
	err = s.write(ctx, len(name), "take a lease", func(st *statements) error {
		now := time.Now()
		var ends int64
		l = store.Lease{Name: name}
		err := st.lease.QueryRowContext(context.Background(), name).Scan(&l.Owner, &l.Number, &ends)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		l.Ends = rows.TimeOf(ends)
		switch ended := ends <= now.UnixNano(); {
		case !ended && l.Owner != owner:
			return fmt.Errorf("%w: %s", store.ErrLeaseTaken, name)
		case l.Number == 0:
			l.Number = now.UnixNano() // a dropped lease may have had a lower number
		case ended:
			l.Number++
		}
		l.Owner, l.Ends = owner, rows.TimeOf(now.Add(d).UnixNano())
		return st.exec(st.putLease, l.Name, l.Owner, l.Number, l.Ends.UnixNano())
	})
	return l, err
}

// EndLease implements store.Store.
func (s *Store) EndLease(ctx context.Context, l store.Lease) error {
	return s.write(ctx, len(l.Name), "end a lease", func(st *statements) error { return st.exec(st.endLease, l.Name, l.Number) })
}

// DropLeases implements store.Store.
func (s *Store) DropLeases(ctx context.Context, prefix string, ago time.Duration) error {
	return s.write(ctx, len(prefix), "drop leases", func(st *statements) error {
		return st.exec(st.dropLeases, []byte(prefix), time.Now().Add(-ago).UnixNano())
	})
}

// MoveCursor implements store.Store.
func (s *Store) MoveCursor(ctx context.Context, c store.Cursor, from int64, lease *store.Lease) error {
	if err := c.Check(); err != nil {
		return err
	}
	refused := fmt.Errorf("%w: the cursor %s is not at %d", store.ErrConflict, c.Name, from)
	return s.write(ctx, len(c.Filter), "move a cursor", func(st *statements) error {
		if err := st.checkLease(lease); err != nil {
			return err
		}
		values := []any{[]byte(c.Name), c.Position, []byte(c.Filter), time.Now().UnixNano()}
		if from == store.NoCursor {
			return st.execOne(refused, st.addCursor, values...)
		}
		return st.execOne(refused, st.moveCursor, append(values, from)...)
	})
}

// Cursors implements store.Store.
func (s *Store) Cursors(ctx context.Context) (all []store.Cursor, err error) {
	err = s.read(ctx, "cursors", func(ctx context.Context) (err error) {
		all, err = queryAll(ctx, s.poolFor(ctx), scanCursor, `SELECT `+cursorColumns+` FROM cursors ORDER BY name`)
		return err
	})
	return all, err
}

const cursorColumns = `name, position, filter, made_at, moved_at`

func scanCursor(r row) (c store.Cursor, err error) {
	var made, moved int64
	err = r.Scan(&c.Name, &c.Position, &c.Filter, &made, &moved)
	c.MadeAt, c.MovedAt = rows.TimeOf(made), rows.TimeOf(moved)
	return c, err
}

// DropCursor implements store.Store.
func (s *Store) DropCursor(ctx context.Context, name string) error {
	refused := fmt.Errorf("%w: cursor %s", store.ErrNotFound, name)
	return s.write(ctx, len(name), "drop a cursor", func(st *statements) error { return st.execOne(refused, st.dropCursor, []byte(name)) })
}

// PutDataKey implements store.Store.
func (s *Store) PutDataKey(ctx context.Context, k store.DataKey, was *store.DataKey) error {
	if err := k.CheckReplaces(was); err != nil {
		return err
	}
	refused := fmt.Errorf("%w: data key %d of %s has changed", store.ErrConflict, k.Number, k.Instance)
	values := []any{k.Instance, k.Number, rows.OrEmpty(k.Wrapped), k.Under, k.MadeAt.UnixNano(), rows.NanosOf(k.DestroyedAt)}
	err := s.write(ctx, len(k.Wrapped), "keep a data key", func(st *statements) error {
		if was == nil {
			return st.execOne(refused, st.addDataKey, values...)
		}
		err := s.replaceDataKey(st, refused, append(values, rows.NanosOf(time.Time{}), rows.OrEmpty(was.Wrapped), was.Under, was.MadeAt.UnixNano(), rows.NanosOf(was.DestroyedAt)))
		if err != nil || k.DestroyedAt.IsZero() {
			return err
		}
		return eraseKeyRemnants(context.Background(), s.writer.conn)
	})
	if err != nil || k.DestroyedAt.IsZero() {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.activeCalls.Done()
	if err := s.writer.cutLog(); err != nil {
		return fmt.Errorf("data key %d of %s is destroyed, but copies of it remain in the log: %w", k.Number, k.Instance, err)
	}
	return nil
}

// replaceDataKey replaces a data key and clears the pages that this frees.
func (s *Store) replaceDataKey(st *statements, refused error, values []any) (err error) {
	if err := setSecureDelete(context.Background(), s.writer.conn, "ON"); err != nil {
		return err
	}
	defer func() {
		if fast := setSecureDelete(context.Background(), s.writer.conn, "FAST"); err == nil {
			err = fast
		}
	}()
	return st.execOne(refused, st.setDataKey, values...)
}

// cutLog checkpoints and truncates the whole log, so that it contains no old data. It waits for readers as long as
// for another process's lock.
func (w *writer) cutLog() error {
	for end := time.Now().Add(w.busy); ; {
		w.mu.Lock()
		cut := w.checkpointWithin(longReaderWait, "TRUNCATE")
		w.mu.Unlock()
		switch {
		case cut:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%w; stop the programs that read the store", ErrBusy)
		}
	}
}

// DataKey implements store.Store.
func (s *Store) DataKey(ctx context.Context, instance string, number int) (k store.DataKey, err error) {
	err = s.read(ctx, fmt.Sprintf("data key %d of %s", number, instance), func(ctx context.Context) (err error) {
		k, err = scanDataKey(s.stmts.dataKey.QueryRowContext(ctx, instance, number))
		return err
	})
	return k, err
}

const dataKeyColumns = `instance, number, wrapped, under, made_at, destroyed_at`

func scanDataKey(r row) (k store.DataKey, err error) {
	var made, destroyed int64
	err = r.Scan(&k.Instance, &k.Number, &k.Wrapped, &k.Under, &made, &destroyed)
	k.MadeAt = rows.TimeOf(made)
	if destroyed != rows.NanosOf(time.Time{}) {
		k.DestroyedAt, k.Wrapped = rows.TimeOf(destroyed), nil
	}
	return k, err
}

// DataKeys implements store.Store.
func (s *Store) DataKeys(ctx context.Context, instance string, number int) iter.Seq2[store.DataKey, error] {
	after := store.DataKey{Instance: instance, Number: number}
	return rows.Pages(ctx, 0, headsPage, func(ctx context.Context, last *store.DataKey, n int) (page []store.DataKey, err error) {
		if last == nil {
			last = &after
		}
		err = s.read(ctx, "data keys", func(ctx context.Context) (err error) {
			page, err = queryAll(ctx, s.poolFor(ctx), scanDataKey, `SELECT `+dataKeyColumns+` FROM data_keys
				WHERE (instance, number) > (?, ?) ORDER BY instance, number LIMIT ?`, last.Instance, last.Number, n)
			return err
		})
		return page, err
	})
}
