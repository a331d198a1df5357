package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// view is a read transaction on its own connection.
type view struct {
	s    *Store
	conn *pgxpool.Conn
	tx   pgx.Tx
}

// OpenView opens a view of the current state.
func (s *Store) OpenView(ctx context.Context) (rows.View, error) {
	conn, err := s.bulk.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", classify(err))
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err == nil { // the first query fixes the state that the transaction sees
		_, err = tx.Exec(ctx, `SELECT pg_current_snapshot()`)
	}
	if err != nil {
		dropConn(conn, err)
		conn.Release()
		return nil, fmt.Errorf("read the store: %w", classify(err))
	}
	return view{s, conn, tx}, nil
}

// Rows implements rows.Reader.
func (v view) Rows(ctx context.Context, t rows.Table) iter.Seq2[rows.Row, error] {
	return v.s.tableRows(ctx, v.tx, t)
}

// Close implements rows.View.
func (v view) Close() error {
	defer v.conn.Release()
	return v.tx.Rollback(context.Background()) //nolint:wrapcheck // nothing was written
}

// tableRows reads a table in key order.
func (s *Store) tableRows(ctx context.Context, on handle, t rows.Table) iter.Seq2[rows.Row, error] {
	return func(yield func(rows.Row, error) bool) {
		found, err := on.Query(ctx, s.sql(`SELECT `+t.List()+` FROM gavel.`+t.Name+` ORDER BY `+t.KeyList()))
		if err != nil {
			yield(nil, classify(err))
			return
		}
		defer found.Close()
		for found.Next() {
			values, err := found.Values()
			if err == nil {
				err = wrapDamaged(t.Normalize(values))
			}
			if err != nil {
				yield(nil, classify(err))
				return
			}
			if !yield(values, nil) {
				return
			}
		}
		if err := found.Err(); err != nil {
			yield(nil, classify(err))
		}
	}
}

// copyLock is the advisory lock of the only process that may copy into a schema. It is held by an open transaction,
// because behind a proxy the session can change.
const copyLock = 0x67617663

// NewStore is a store that is being built by copying rows. It cannot be opened before it is complete.
type NewStore struct {
	s      *Store
	schema string
	lock   pgx.Tx
	free   func()
}

// Create begins a store that is built by copying rows, or resumes an unfinished one. Errors: driver.ErrNotEmpty,
// driver.ErrCopying, and those of Open.
func Create(ctx context.Context, cfg Config) (_ *NewStore, err error) {
	cfg.Schema = cmp.Or(cfg.Schema, DefaultSchema)
	s, err := openMarked(ctx, cfg, unfinishedMark)
	if err != nil {
		return nil, err
	}
	n := &NewStore{s: s, schema: cfg.Schema, free: func() {}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("make the store: %w", classify(errors.Join(err, n.Close())))
		}
	}()
	conn, err := s.writes.Acquire(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // above
	}
	n.free = conn.Release
	if n.lock, err = conn.Begin(ctx); err != nil {
		return nil, err //nolint:wrapcheck // above
	}
	var locked bool
	err = n.lock.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1, hashtext($2))`, copyLock, cfg.Schema).Scan(&locked)
	if err == nil && !locked {
		err = driver.ErrCopying
	}
	return n, err
}

// checkEmpty returns ErrNotEmpty if a table of the store on the search path has rows.
func checkEmpty(ctx context.Context, tx pgx.Tx) error {
	var parts []string
	for _, t := range rows.Tables {
		parts = append(parts, `EXISTS (SELECT FROM `+t.Name+`)`)
	}
	var filled bool
	err := tx.QueryRow(ctx, `SELECT `+strings.Join(parts, " OR ")).Scan(&filled)
	if err == nil && filled {
		return driver.ErrNotEmpty
	}
	return err //nolint:wrapcheck // Create wraps it
}

// Rows implements rows.Reader.
func (n *NewStore) Rows(ctx context.Context, t rows.Table) iter.Seq2[rows.Row, error] {
	return n.s.tableRows(ctx, n.s.bulk, t)
}

// Replace implements rows.Writer.
func (n *NewStore) Replace(ctx context.Context, t rows.Table, remove, add []rows.Row) error {
	err := pgx.BeginFunc(ctx, n.s.bulk, func(tx pgx.Tx) error {
		if err := n.remove(ctx, tx, t, remove); err != nil {
			return err
		}
		return n.add(ctx, tx, t, add)
	})
	return classify(err)
}

// Entry implements store.Entries.
func (n *NewStore) Entry(ctx context.Context, name string, seen int64) (store.Entry, error) {
	return n.s.Entry(ctx, name, seen)
}

// PutEntry implements store.Entries.
func (n *NewStore) PutEntry(ctx context.Context, e store.Entry) error { return n.s.PutEntry(ctx, e) }

func (n *NewStore) remove(ctx context.Context, tx pgx.Tx, t rows.Table, all []rows.Row) error {
	if len(all) == 0 {
		return nil
	}
	var args []any
	var lists []string
	for i, c := range t.Columns[:t.Key] {
		kind := map[rows.Type]string{rows.Int: "int8[]", rows.Text: "text[]", rows.Blob: "bytea[]"}[c.Type]
		args, lists = append(args, keyColumn(all, i)), append(lists, "$"+strconv.Itoa(i+1)+"::"+kind)
	}
	_, err := tx.Exec(ctx, n.s.sql(`DELETE FROM gavel.`+t.Name+` WHERE (`+t.KeyList()+`) IN (SELECT * FROM unnest(`+strings.Join(lists, ", ")+`))`), args...)
	return err //nolint:wrapcheck // Replace names it
}

// keyColumn returns a column of rows as an array.
func keyColumn(all []rows.Row, i int) any {
	switch all[0][i].(type) {
	case int64:
		return valuesOf[int64](all, i)
	case []byte:
		return valuesOf[[]byte](all, i)
	}
	return valuesOf[string](all, i)
}

func valuesOf[T any](all []rows.Row, i int) []T {
	column := make([]T, len(all))
	for j, row := range all {
		column[j] = row[i].(T)
	}
	return column
}

func (n *NewStore) add(ctx context.Context, tx pgx.Tx, t rows.Table, all []rows.Row) error {
	if len(all) == 0 {
		return nil
	}
	names := strings.Split(t.List(), ", ")
	if t.Name == eventsTable {
		var err error
		if all, err = n.addTerms(ctx, tx, all); err != nil {
			return err
		}
		names = append(names, "terms")
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{n.schema, t.Name}, names, pgx.CopyFromSlice(len(all), func(i int) ([]any, error) {
		values := append([]any(nil), all[i]...)
		for j, c := range t.Columns {
			switch {
			case c.Type == rows.Bool:
				values[j] = values[j] == int64(1)
			case c.Type == rows.Named && values[j] != nil:
				values[j] = []byte(values[j].(string))
			}
		}
		return values, nil
	}))
	return err //nolint:wrapcheck // Replace names it
}

// The table of events, and the columns of its rows from which terms are made.
const (
	eventsTable            = "events"
	eventNumber, eventBody = 1, 9
)

// addTerms adds their index terms to the rows of events.
func (n *NewStore) addTerms(ctx context.Context, tx pgx.Tx, all []rows.Row) ([]rows.Row, error) {
	owners := map[int64]string{}
	found, err := tx.Query(ctx, n.s.sql(`SELECT n, owner FROM gavel.instances WHERE n = ANY ($1)`), valuesOf[int64](all, eventNumber))
	if err != nil {
		return nil, err //nolint:wrapcheck // Replace names it
	}
	var number int64
	var owner []byte
	if _, err := pgx.ForEachRow(found, []any{&number, &owner}, func() error { owners[number] = string(owner); return nil }); err != nil {
		return nil, err //nolint:wrapcheck // Replace names it
	}
	out := make([]rows.Row, len(all))
	for i, row := range all {
		e, err := record.Decode(row[eventBody].([]byte))
		if err != nil {
			return nil, fmt.Errorf("the event at position %d: %w", row[0], err)
		}
		out[i] = append(append(rows.Row(nil), row...), eventTerms(e, owners[row[eventNumber].(int64)]))
	}
	return out, nil
}

// buildBlocks creates the blocks of all events.
const buildBlocks = `INSERT INTO gavel.blocks (block, first, last) SELECT pos >> 13, min(at), max(at) FROM gavel.events GROUP BY 1`

// Finish writes the derived tables and allows the store to be opened.
func (n *NewStore) Finish(ctx context.Context) error {
	_, err := n.lock.Exec(ctx, n.s.sql(`UPDATE gavel.counter SET last = (SELECT coalesce(max(pos), 0) FROM gavel.events)`))
	if err == nil {
		_, err = n.lock.Exec(ctx, n.s.sql(buildBlocks))
	}
	for _, column := range [][2]string{{"instances", "n"}, {"refusals", "pos"}} {
		if err == nil {
			_, err = n.lock.Exec(ctx, n.s.sql(`SELECT setval(pg_get_serial_sequence($1, $2), (SELECT coalesce(max(`+column[1]+`), 0) + 1 FROM gavel.`+column[0]+`), false)`),
				n.s.schema+column[0], column[1])
		}
	}
	for _, t := range rows.Tables {
		if err == nil { // the rows have never been analysed
			_, err = n.lock.Exec(ctx, n.s.sql(`ANALYZE gavel.`+t.Name))
		}
	}
	if err == nil {
		err = setMark(ctx, n.lock, n.schema, schemaMark)
	}
	if err == nil {
		err = n.lock.Commit(ctx)
	}
	if err != nil {
		return fmt.Errorf("finish the store: %w", classify(err))
	}
	return n.Close()
}

// Close leaves the store as it is: unfinished, unless Finish was called.
func (n *NewStore) Close() error {
	if n.lock != nil {
		if err := n.lock.Rollback(context.Background()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			n.s.log.Debug("the lock of a copy was not released", "cause", err)
		}
	}
	n.free()
	n.s.closePools()
	return nil
}
