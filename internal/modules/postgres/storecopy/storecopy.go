// Package storecopy makes a store an exact copy of another one, row by row, independently of their drivers.
//
//   - After a copy, all rows are identical, including positions, hashes, seals and wrapped keys.
//   - Rows that are already present are compared and kept, so that an interrupted copy resumes where it stopped.
//   - Rows that were removed or changed in the source since then are removed or changed in the copy.
//   - The package treats rows as opaque, and must never judge, hash or decrypt them.
package storecopy

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gavel-mcp/gavel/engine/store/rows"
)

var (
	// ErrMoving is returned if the source was written to during every pass.
	ErrMoving = errors.New("the store is being written to")
	// ErrDifferent is returned if two stores differ.
	ErrDifferent = errors.New("the rows differ")
)

// batchBytes and batchRows limit one transaction.
const batchBytes = 4 << 20

var batchRows = 1000 // a variable, so that tests can lower it

// maxPasses limits the passes over a store that is being written to. The last pass must find no difference.
const maxPasses = 3

// Progress receives the table being read and how many of its rows have been read.
type Progress func(table string, rows int64)

// Report describes the contents of a copy and the work done for it.
type Report struct {
	// Rows is the number of rows of each table.
	Rows map[string]int64 `json:"rows"`
	// Written is the number of rows that were added or changed, Removed the number of rows that were removed.
	Written int64 `json:"written"`
	Removed int64 `json:"removed"`
	// Passes is the number of times all rows were read; the last pass found no difference.
	Passes int `json:"passes"`
}

// Copy makes passes over new views of the source until a pass finds no difference. It returns ErrMoving if every pass
// finds one; the rows copied so far stay, and another Copy resumes.
func Copy(ctx context.Context, from func(context.Context) (rows.View, error), to rows.Writer, progress Progress) (Report, error) {
	var r Report
	for r.Passes < maxPasses {
		r.Passes++
		changed, err := r.pass(ctx, from, to, progress)
		if err != nil || !changed {
			return r, err
		}
	}
	return r, ErrMoving
}

func (r *Report) pass(ctx context.Context, from func(context.Context) (rows.View, error), to rows.Writer, progress Progress) (changed bool, err error) {
	view, err := from(ctx)
	if err != nil {
		return false, err //nolint:wrapcheck // the driver's
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	written, removed := r.Written, r.Removed
	r.Rows = map[string]int64{}
	for _, t := range rows.Tables {
		if err := r.copyTable(ctx, t, view, to, progress); err != nil {
			return false, fmt.Errorf("copy the table %s: %w", t.Name, err)
		}
	}
	return r.Written != written || r.Removed != removed, nil
}

func (r *Report) copyTable(ctx context.Context, t rows.Table, from rows.Reader, to rows.Writer, progress Progress) error {
	b := batch{table: t, to: to, report: r}
	count, err := compareTable(ctx, t, from, to, func(seen int64, remove, add rows.Row) error {
		progress(t.Name, seen)
		return b.put(ctx, remove, add)
	})
	if err == nil {
		err = b.write(ctx)
	}
	r.Rows[t.Name] = count
	return err
}

// batch collects the changes of a table for a single transaction.
type batch struct {
	table       rows.Table
	to          rows.Writer
	report      *Report
	remove, add []rows.Row
	size        int
}

func (b *batch) put(ctx context.Context, remove, add rows.Row) error {
	if remove != nil {
		b.remove = append(b.remove, remove[:b.table.Key])
	}
	switch {
	case add != nil:
		b.add, b.size = append(b.add, add), b.size+add.Size()
		b.report.Written++
	case remove != nil:
		b.report.Removed++
	}
	if len(b.remove)+len(b.add) < batchRows && b.size < batchBytes {
		return nil
	}
	return b.write(ctx)
}

func (b *batch) write(ctx context.Context) error {
	if len(b.remove)+len(b.add) == 0 {
		return nil
	}
	if err := b.to.Replace(ctx, b.table, b.remove, b.add); err != nil {
		return err //nolint:wrapcheck // the driver's
	}
	b.remove, b.add, b.size = nil, nil, 0
	return nil
}

// Compare compares two stores row by row. It returns ErrDifferent if a row is not the same in both.
func Compare(ctx context.Context, a, b rows.Reader, progress Progress) (Report, error) {
	r := Report{Passes: 1, Rows: map[string]int64{}}
	for _, t := range rows.Tables {
		count, err := compareTable(ctx, t, a, b, func(seen int64, remove, add rows.Row) error {
			progress(t.Name, seen)
			if remove != nil || add != nil {
				return ErrDifferent
			}
			return nil
		})
		if err != nil {
			return r, fmt.Errorf("compare the table %s: %w", t.Name, err)
		}
		r.Rows[t.Name] = count
	}
	return r, nil
}

// compareTable walks through a table in both stores in parallel, and returns the number of its rows in the first. It
// calls each with the row to remove from the second store and the row to add to it; both are nil for equal rows.
func compareTable(ctx context.Context, t rows.Table, from, to rows.Reader, each func(seen int64, remove, add rows.Row) error) (seen int64, err error) {
	next, stop := iter.Pull2(to.Rows(ctx, t))
	defer stop()
	there, err, ok := next()
	skip := func() error { // to the next row of the second store
		err := each(seen, there, nil)
		if err == nil {
			there, err, ok = next()
		}
		return err
	}
	for row, fromErr := range from.Rows(ctx, t) {
		for err == nil && ok && fromErr == nil && t.Compare(there, row) < 0 {
			err = skip()
		}
		if err := errors.Join(fromErr, err); err != nil {
			return seen, err
		}
		seen++
		switch {
		case !ok || t.Compare(there, row) > 0:
			err = each(seen, nil, row)
		case there.Equal(row):
			if err = each(seen, nil, nil); err == nil {
				there, err, ok = next()
			}
		default:
			if err = each(seen, there, row); err == nil {
				there, err, ok = next()
			}
		}
		if err != nil {
			return seen, err
		}
	}
	for err == nil && ok {
		err = skip()
	}
	return seen, err
}
