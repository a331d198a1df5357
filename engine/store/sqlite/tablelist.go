package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/store"
)

// tableTemplate describes a table independently of the damaged file.
type tableTemplate struct {
	name string
	// create declares the table without the constraints that need indexes. check is a query that reports whether its
	// row at one end (ORDER BY rowid %s) has values of the right types.
	create, check string
}

// knownTables returns the tables of a store, as they are in the new store db.
func knownTables(ctx context.Context, db *sql.DB) (all []tableTemplate, err error) {
	for _, name := range salvagedTables {
		var columns, types string
		err := db.QueryRowContext(ctx, `SELECT group_concat(name || ' ' || type || iif(type = 'INTEGER' AND pk = 1 AND keys = 1, ' PRIMARY KEY', '') || coalesce(' DEFAULT ' || dflt_value, '')),
			group_concat('typeof(' || name || ') IN (' || iif("notnull", '', '''null'', ') || '''' || lower(type) || ''')', ' AND ')
			FROM pragma_table_info(?1), (SELECT count(*) AS keys FROM pragma_table_info(?1) WHERE pk > 0)`, name).Scan(&columns, &types)
		if err != nil {
			return nil, err
		}
		all = append(all, tableTemplate{name, "CREATE TABLE " + name + " (" + columns + ")", "SELECT " + types + " FROM (SELECT * FROM " + name + " ORDER BY rowid %s LIMIT 1)"})
	}
	return all, nil
}

// completeTableList writes a new list of tables (sqlite_schema) into a damaged file if its own list is incomplete,
// and reports this as a loss. It assumes that tables have the same root pages as in the new store db, whose file is
// part, or as in a backup of it.
func completeTableList(ctx context.Context, db *sql.DB, part, damaged string) ([]Loss, error) {
	listed, err := readTableList(ctx, damaged)
	if errors.Is(err, ErrNotAStore) || errors.Is(err, store.ErrOtherSchema) || fileSize(damaged) < pageSize4K {
		return nil, nil //nolint:nilerr // reading the tables reports the error
	}
	all, err := knownTables(ctx, db)
	if err != nil || !slices.ContainsFunc(all, func(t tableTemplate) bool { return listed[t.name] == 0 }) {
		return nil, err
	}
	if err := replayLogInto(damaged); err != nil {
		return nil, err
	}
	backup := part + "-backup"
	if err := vacuumInto(ctx, part, backup); err != nil {
		return nil, err
	}
	found, filled := map[string]int64{}, 0
	for _, like := range []string{part, backup} {
		roots, err := readTableList(ctx, like)
		if err != nil {
			return nil, err
		}
		maps.Copy(roots, listed)
		if err := writeTableList(ctx, part, damaged, all, roots); err != nil {
			return nil, err
		}
		if fit, n := checkTables(ctx, damaged, all, roots); n > filled {
			found, filled = fit, n
		}
	}
	if filled == 0 {
		return nil, fmt.Errorf("%w (its list of tables cannot be read)", ErrCorrupt)
	}
	lost := Loss{Table: "sqlite_schema", Why: "cannot be read; tables were searched for at the positions of a new store"}
	return []Loss{lost}, writeTableList(ctx, part, damaged, all, found)
}

// readTableList returns the root pages of the tables that a file lists, as far as they can be read.
func readTableList(ctx context.Context, path string) (roots map[string]int64, err error) {
	roots = map[string]int64{}
	db, err := openTableList(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = checkIdentity(ctx, db, "main")
	_, listErr := queryAll(ctx, db, func(r row) (none struct{}, err error) {
		var name string
		var root int64
		if err = r.Scan(&name, &root); err == nil {
			roots[name] = root
		}
		return none, err
	}, `SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'`)
	return roots, cmp.Or(err, listErr)
}

// openTableList opens a file so that its list of tables can be read or written.
func openTableList(path string) (*sql.DB, error) {
	db, err := sql.Open(driverName, dataSourceName(path, "writable_schema(ON)", "trusted_schema(OFF)", "synchronous(OFF)"))
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// checkTables returns the tables that are empty or have a valid row at either end, and how many have a valid row.
func checkTables(ctx context.Context, path string, all []tableTemplate, roots map[string]int64) (fit map[string]int64, filled int) {
	fit = map[string]int64{}
	db, err := openTableList(path)
	if err != nil {
		return nil, 0
	}
	defer func() { _ = db.Close() }() // nothing was written
	for _, t := range all {
		for _, end := range []string{"ASC", "DESC"} {
			var ok bool
			err := db.QueryRowContext(ctx, fmt.Sprintf(t.check, end)).Scan(&ok)
			if ok {
				filled++
			}
			if ok || errors.Is(err, sql.ErrNoRows) {
				fit[t.name] = roots[t.name]
				break
			}
		}
	}
	return fit, filled
}

// writeTableList writes a first page that contains only a list of tables. It keeps the file's header, or uses that of
// the new store if the header is lost.
func writeTableList(ctx context.Context, part, path string, all []tableTemplate, roots map[string]int64) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	first := make([]byte, pageSize4K)
	if _, err = file.ReadAt(first, 0); err == nil && !bytes.HasPrefix(first, []byte("SQLite format 3\x00")) {
		var fresh *os.File
		if fresh, err = os.Open(part); err == nil {
			_, err = fresh.ReadAt(first, 0)
			err = errors.Join(err, fresh.Close())
		}
	}
	// The header: no WAL mode, the right number of pages, no free pages and no pointer-map pages
	// (sqlite.org/fileformat2.html#the_database_header). An empty leaf follows.
	const header = 100
	pages := fileSize(path) / pageSize4K
	first[18], first[19] = 1, 1
	binary.BigEndian.PutUint32(first[28:], uint32(pages)) //nolint:gosec // SQLite counts no more
	copy(first[92:96], first[24:28])
	for _, field := range []int{32, 36, 52, 64} {
		clear(first[field : field+4])
	}
	clear(first[header:])
	first[header] = 0x0d
	binary.BigEndian.PutUint16(first[header+5:], pageSize4K)
	if err == nil {
		_, err = file.WriteAt(first, 0)
	}
	if err = errors.Join(err, file.Truncate(pages*pageSize4K), file.Close()); err != nil {
		return err
	}
	db, err := openTableList(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var list []string
	var values []any
	for _, t := range all {
		if roots[t.name] != 0 {
			list, values = append(list, "('table', ?, ?, ?, ?)"), append(values, t.name, t.name, roots[t.name], t.create)
		}
	}
	_, err = db.ExecContext(ctx, "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES "+strings.Join(list, ", "), values...) //nolint:gosec // placeholders alone are joined
	return err
}

// replayLogInto replays the log of a damaged copy into the copy and removes the log.
func replayLogInto(damaged string) error {
	log := damaged + "-wal"
	if fileSize(log) == 0 {
		return nil
	}
	if _, err := replayLog(log, damaged); err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	return os.Remove(log)
}
