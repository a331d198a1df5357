package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// view is a read transaction.
type view struct{ *sql.Tx }

// OpenView opens a view of the current state. While it is open, the write-ahead log is not truncated.
func (s *Store) OpenView(ctx context.Context) (rows.View, error) {
	tx, err := s.bulk.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("read the store %s: %w", s.path, classifyError(err))
	}
	var first int // the first read fixes the state that the transaction sees
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema`).Scan(&first); err != nil {
		return nil, errors.Join(fmt.Errorf("read the store %s: %w", s.path, classifyError(err)), tx.Rollback())
	}
	return view{tx}, nil
}

// Rows implements rows.Reader.
func (v view) Rows(ctx context.Context, t rows.Table) iter.Seq2[rows.Row, error] {
	return tableRows(ctx, v, t)
}

// Close implements rows.View.
func (v view) Close() error { return v.Rollback() }

// tableRows reads a table in key order.
func tableRows(ctx context.Context, on handle, t rows.Table) iter.Seq2[rows.Row, error] {
	return func(yield func(rows.Row, error) bool) {
		found, err := on.QueryContext(ctx, `SELECT `+t.List()+` FROM `+t.Name+` ORDER BY `+t.KeyList())
		if err != nil {
			yield(nil, classifyError(err))
			return
		}
		defer func() { _ = found.Close() }() // Err reports any error
		targets := make([]any, len(t.Columns))
		for found.Next() {
			row := make(rows.Row, len(t.Columns))
			for i := range row {
				targets[i] = &row[i]
			}
			if err := found.Scan(targets...); err != nil {
				yield(nil, classifyError(err))
				return
			}
			if err := t.Normalize(row); err != nil {
				yield(nil, wrapCorrupt(err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := found.Err(); err != nil {
			yield(nil, classifyError(err))
		}
	}
}

// UnfinishedSuffix is the name suffix of a store while rows are copied into it.
const UnfinishedSuffix = ".copying"

// NewStore is a store that is being built by copying rows. It gets its final name once it is complete.
type NewStore struct {
	path, part string
	db         *sql.DB
}

// Create begins a store that is built by copying rows, or resumes an unfinished one. Only one process at a time may
// do so. Errors: ErrExists, and those of Open.
func Create(ctx context.Context, path string) (_ *NewStore, err error) {
	n := &NewStore{path: path, part: path + UnfinishedSuffix}
	defer func() {
		if err != nil {
			err = fmt.Errorf("make the store %s: %w", path, classifyError(err))
		}
	}()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(ErrExists, err)
	}
	if err := emptyStore(ctx, n.part); err != nil {
		return nil, err
	}
	// secure_delete is ON, because a row that is deleted again may have been destroyed deliberately in the original
	// store: no copy of it may remain.
	n.db, err = sql.Open(driverName, dataSourceName(n.part, "busy_timeout(10000)", "synchronous(NORMAL)", "cache_size(-32000)", "temp_store(memory)", "secure_delete(ON)"))
	return n, err
}

// Rows implements rows.Reader.
func (n *NewStore) Rows(ctx context.Context, t rows.Table) iter.Seq2[rows.Row, error] {
	return tableRows(ctx, n.db, t)
}

// Replace implements rows.Writer.
func (n *NewStore) Replace(ctx context.Context, t rows.Table, remove, add []rows.Row) (err error) {
	tx, err := n.db.BeginTx(ctx, nil)
	if err != nil {
		return classifyError(err)
	}
	defer func() {
		if err != nil {
			err = classifyError(errors.Join(err, tx.Rollback()))
		}
	}()
	values := func(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }
	for _, step := range []struct {
		query string
		rows  []rows.Row
	}{
		{`DELETE FROM ` + t.Name + ` WHERE (` + t.KeyList() + `) = (` + values(t.Key) + `)`, remove},
		{`INSERT INTO ` + t.Name + ` (` + t.List() + `) VALUES (` + values(len(t.Columns)) + `)`, add},
	} {
		if err := execEach(ctx, tx, step.query, step.rows); err != nil {
			return err
		}
	}
	if t.Name == "data_keys" && len(remove) > 0 {
		if err := eraseKeyRemnants(ctx, tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func execEach(ctx context.Context, tx *sql.Tx, query string, all []rows.Row) (err error) {
	if len(all) == 0 {
		return nil
	}
	stmt, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stmt.Close()) }()
	for _, row := range all {
		if _, err := stmt.ExecContext(ctx, row...); err != nil {
			return err
		}
	}
	return nil
}

// Finish makes the store durable and gives it its final name. Close is not needed afterwards.
func (n *NewStore) Finish(ctx context.Context) error {
	_, err := n.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	if err = errors.Join(err, n.db.Close()); err == nil {
		err = errors.Join(syncFile(n.part), publishFile(n.part, n.path, false))
	}
	if err != nil {
		return fmt.Errorf("finish the store %s: %w", n.path, classifyError(err))
	}
	if err := os.Remove(n.part); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close leaves the store unfinished.
func (n *NewStore) Close() error { return n.db.Close() }
