package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// How rows are read by ranges of keys.
const (
	// rowsAtOnce is how many rows one query reads.
	rowsAtOnce = 256
	// triesPerRange bounds into how many pieces a range is cut that cannot be read: a
	// piece is as small as one key, unless there are more keys than this.
	triesPerRange = 1 << 15
	// mostRowsPerPage is more than a page of 4 KiB can hold of any table.
	mostRowsPerPage = 512
	// mostProbed bounds how many keys are asked for one by one, longestHole how many in a row.
	mostProbed, longestHole = 1 << 17, 1 << 13
)

// table saves what can be read of one table.
func (s *salvor) table(ctx context.Context, name string) error {
	columns, err := s.columns(ctx, name)
	if err != nil {
		return err
	}
	t := tableReader{salvor: s, damage: DamagedTable{Name: name}, width: len(columns)}
	list := strings.Join(columns, ", ")
	if err := t.prepare(ctx, "SELECT rowid, "+s.present(ctx, name, columns)+" FROM "+name+" WHERE rowid "); err != nil {
		if !isMissing(err) {
			return err
		}
		s.result.Tables = append(s.result.Tables, DamagedTable{Name: name, Missing: true})
		return nil
	}
	defer t.close()
	//nolint:gosec // the names of this program's own tables and columns
	save, err := s.tx.PrepareContext(ctx, "INSERT INTO "+name+" ("+list+") VALUES (?"+strings.Repeat(", ?", len(columns)-1)+")")
	if err != nil {
		return err
	}
	defer func() { _ = save.Close() }() // with the transaction at the latest
	put := func(values []any) error {
		_, err := save.ExecContext(ctx, values...)
		return err
	}
	t.take = func(key int64, values []any) error {
		values, why := s.examine(name, columns, values)
		if why == nil {
			why = put(values)
		}
		switch {
		case why == nil:
		case isFull(why), ctx.Err() != nil:
			return why
		default:
			t.damage.Refused = append(t.damage.Refused, RefusedRow{key, why.Error()})
		}
		return nil
	}
	if err := t.all(ctx); err != nil {
		return err
	}
	if t.troubled && slices.Contains(proveThemselves, name) {
		if err := t.strays(ctx, columns, put); err != nil {
			return err
		}
	}
	t.damage.Unreadable = without(t.damage.Unreadable, t.seen)
	if d := t.damage; len(d.Unreadable) > 0 || len(d.Refused) > 0 {
		slices.SortFunc(d.Refused, func(a, b RefusedRow) int { return cmp.Compare(a.Key, b.Key) })
		s.result.Tables = append(s.result.Tables, d)
	}
	return nil
}

func isFull(err error) bool {
	return errors.Is(classify(err), ErrDiskFull) || errors.Is(classify(err), ErrReadOnly)
}

// columns are a table's in the new store; what the damaged one says of itself does not
// count.
func (s *salvor) columns(ctx context.Context, table string) ([]string, error) {
	rows, err := s.tx.QueryContext(ctx, "SELECT name FROM pragma_table_info(?) ORDER BY cid", table)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, func(r row) (name string, err error) { err = r.Scan(&name); return name, err })
}

// tableReader reads one table of the damaged store by its rowid.
type tableReader struct {
	*salvor
	rising, falling, one *sql.Stmt
	width                int
	take                 func(key int64, values []any) error
	damage               DamagedTable
	finest               int64 // no piece is cut below this
	seen                 keySet
	highestSeen          int64
	troubled             bool // something could not be read
}

// keySet notes which keys up to a highest one were read.
type keySet []uint64

func (k keySet) has(key int64) bool { return key/64 < int64(len(k)) && k[key/64]&(1<<(key%64)) != 0 }

func (k keySet) add(key int64) {
	if key/64 < int64(len(k)) {
		k[key/64] |= 1 << (key % 64)
	}
}

// No bound is asked for but the one to begin at: where keys are damaged, SQLite would
// take one that is too high for the end.
func (t *tableReader) prepare(ctx context.Context, query string) (err error) {
	for stmt, rest := range map[**sql.Stmt]string{
		&t.rising: ">= ? ORDER BY rowid LIMIT ?", &t.falling: "<= ? ORDER BY rowid DESC LIMIT ?", &t.one: "= ? LIMIT ?",
	} {
		if *stmt, err = t.from.PrepareContext(ctx, query+rest); err != nil { //nolint:sqlclosecheck // close closes them
			t.close()
			return err
		}
	}
	return nil
}

// close gives the statements back. The store that they read is a copy, and damaged.
func (t *tableReader) close() {
	for _, stmt := range []*sql.Stmt{t.rising, t.falling, t.one} {
		if stmt != nil {
			_ = stmt.Close()
		}
	}
}

// all saves the rows of the whole table: by ranges, and then the keys that no range
// showed and that can be found one by one.
func (t *tableReader) all(ctx context.Context) error {
	to, err := t.last(ctx)
	if err != nil {
		return err
	}
	t.seen = make(keySet, to/64+1)
	if err := t.read(ctx, 1, to); err != nil {
		return err
	}
	if !t.troubled {
		to = t.highestSeen // nothing speaks for more
	}
	budget := mostProbed
	for from := int64(1); from <= to; from++ {
		end := from
		for end <= to && !t.seen.has(end) {
			end++
		}
		hole := end - from
		if hole > longestHole || hole > int64(budget) {
			from = end
			continue
		}
		for ; from < end; from++ {
			if _, err := t.scan(ctx, t.one, from, from, false); isFatal(ctx, err) {
				return err
			}
			budget--
		}
	}
	return nil
}

// isMissing reports whether a query failed because of a table that is not there.
func isMissing(err error) bool {
	var se *sqlite.Error
	return errors.As(err, &se) && se.Code()&0xff == sqlite3.SQLITE_ERROR && strings.Contains(se.Error(), "no such table")
}

// last is a number that no key is above which could be read.
func (t *tableReader) last(ctx context.Context) (int64, error) {
	most := max(1<<16, t.pages*mostRowsPerPage)
	var last sql.NullInt64
	err := t.from.QueryRowContext(ctx, "SELECT max(rowid) FROM "+t.damage.Name).Scan(&last)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err == nil && last.Int64 <= most:
		return max(last.Int64, t.highest), nil
	}
	return t.highest, nil // reading meets the same damage, and says where
}

// read saves the rows of a range: from both ends as far as one can get, and then each
// half of what lies between.
func (t *tableReader) read(ctx context.Context, from, to int64) error {
	if from > to {
		return nil
	}
	last, err := t.scan(ctx, t.rising, from, to, false)
	if isFatal(ctx, err) {
		return err
	}
	whole := err == nil
	t.troubled = t.troubled || !whole
	from = last + 1
	last, err = t.scan(ctx, t.falling, from, to, true) // where all is well, this meets nothing
	if isFatal(ctx, err) {
		return err
	}
	if whole && err == nil {
		return nil
	}
	to = last - 1
	if t.finest == 0 {
		t.finest = max(1, (to-from)/triesPerRange)
	}
	switch {
	case from > to:
		return nil
	case to-from < t.finest:
		t.lost(from, to)
		return nil
	}
	middle := from + (to-from)/2
	if err := t.read(ctx, from, middle); err != nil {
		return err
	}
	return t.read(ctx, middle+1, to)
}

// lost notes a range that cannot be read, beside the one before where they touch.
func (t *tableReader) lost(from, to int64) {
	if n := len(t.damage.Unreadable); n > 0 && t.damage.Unreadable[n-1].To == from-1 {
		t.damage.Unreadable[n-1].To = to
		return
	}
	t.damage.Unreadable = append(t.damage.Unreadable, Range{from, to})
}

// fatalError is one that is not the damaged store's.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

func isFatal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.As(err, new(fatalError))
}

// scan saves rows from one end of a range until it ends or something cannot be read,
// and returns the last key that could be.
func (t *tableReader) scan(ctx context.Context, stmt *sql.Stmt, from, to int64, falling bool) (last int64, err error) {
	last, begin, step := from-1, from, int64(1)
	if falling {
		last, begin, step = to+1, to, -1
	}
	for from <= begin && begin <= to {
		n, ended, err := t.page(ctx, stmt, begin, func(key int64) (bool, error) {
			switch {
			case (key-last)*step <= 0: // keys go one way
				return false, ErrCorrupt
			case key < from || key > to:
				return false, nil
			}
			last = key
			return true, nil
		})
		if err != nil || ended || n < rowsAtOnce {
			return last, err
		}
		begin = last + step
	}
	return last, nil
}

// page saves the rows that one query gives, until may says that it is enough.
func (t *tableReader) page(ctx context.Context, stmt *sql.Stmt, begin int64, may func(key int64) (bool, error)) (n int, ended bool, err error) {
	rows, err := stmt.QueryContext(ctx, begin, rowsAtOnce)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		values := make([]any, t.width+1)
		into := make([]any, t.width+1)
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return n, false, err
		}
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				values[i] = orEmpty(b) // an empty value is not NULL
			}
		}
		key, ok := values[0].(int64)
		if !ok {
			return n, false, ErrCorrupt
		}
		if within, err := may(key); err != nil || !within {
			return n, true, err
		}
		n++
		if t.seen.has(key) {
			continue
		}
		t.seen.add(key)
		t.highestSeen = max(t.highestSeen, key)
		if err := t.take(key, values[1:]); err != nil {
			return n, false, fatalError{err}
		}
	}
	return n, false, rows.Err()
}

// examine looks whether a row can be what was written, and returns it as it is to be
// saved. Most tables have nothing to go by but the types of their columns.
func (s *salvor) examine(table string, columns []string, values []any) ([]any, error) {
	row := salvagedRow{columns, values}
	switch table {
	case "events":
		return s.event(row)
	case "definitions":
		d := store.Definition{Name: row.text("name"), Document: row.blob("document"), Hash: row.text("hash")}
		if err := d.CheckDocument(); err != nil {
			return nil, err
		}
	case "instances":
		inst, err := row.instance()
		if err != nil {
			return nil, err
		}
		s.ids.add(inst.ID, row.integer("n"))
	case "contexts":
		if !json.Valid(row.blob("context")) {
			return nil, errors.New("it is no JSON")
		}
	case "snapshots":
		if !json.Valid(row.blob("context")) {
			return nil, errors.New("its context is no JSON")
		}
		if _, _, err := decodeSnapshot(row.blob("instance"), row.blob("context")); err != nil {
			return nil, err
		}
	case "reviews":
		r := reviewRow{id: row.text("id"), body: row.blob("body"), data: row.blob("data")}
		if _, err := r.stored(); err != nil {
			return nil, err
		}
	case "judge_configs":
		var c store.JudgeConfig
		if err := json.Unmarshal(row.blob("settings"), &c.Settings); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// event is an event's row made anew from its body: a row counts for nothing but that.
func (s *salvor) event(row salvagedRow) ([]any, error) {
	body := row.blob("body")
	e, err := record.Decode(body)
	if err != nil {
		return nil, err
	}
	e.PrevHash, e.Hash = hex.EncodeToString(row.blob("prev_hash")), hex.EncodeToString(row.blob("hash"))
	if broken, ok := errors.AsType[*record.BrokenError](record.VerifyEvent(e)); ok {
		return nil, fmt.Errorf("event %d of %s: %s", broken.Seq, broken.Instance, broken.How)
	}
	n := s.ids.add(e.Instance, row.integer("n"))
	var scope any
	if e.Key != nil {
		raw, err := hex.DecodeString(e.Key.Scope)
		if err != nil {
			return nil, err
		}
		scope = raw
	}
	out := make([]any, len(row.columns))
	for i, column := range row.columns {
		switch column {
		case "n":
			out[i] = n
		case "seq":
			out[i] = e.Seq
		case "revision":
			out[i] = e.Revision
		case "kind":
			out[i] = string(e.Kind)
		case "at":
			out[i] = e.Time.UnixNano()
		case "key_scope":
			out[i] = scope
		default: // pos, and what is the body's
			out[i] = row.values[i]
		}
	}
	return out, nil
}

// numbers are what stands for instances in rows.
type numbers struct {
	of      map[string]int64
	taken   map[int64]bool
	highest int64
}

// add returns the number of an instance: the one that it has, or the one that a row says,
// or where that stands for another one, a new one.
func (m *numbers) add(id string, n int64) int64 {
	if have, ok := m.of[id]; ok {
		return have
	}
	if n <= 0 || m.taken[n] {
		n = m.highest + 1
	}
	m.of[id], m.taken[n], m.highest = n, true, max(m.highest, n)
	return n
}

// salvagedRow is a row with the names of its columns.
type salvagedRow struct {
	columns []string
	values  []any
}

func (r salvagedRow) value(column string) any {
	if i := slices.Index(r.columns, column); i >= 0 {
		return r.values[i]
	}
	return nil
}

func (r salvagedRow) text(column string) string {
	s, _ := r.value(column).(string)
	return s
}

func (r salvagedRow) blob(column string) []byte {
	b, _ := r.value(column).([]byte)
	return b
}

func (r salvagedRow) integer(column string) int64 {
	n, _ := r.value(column).(int64)
	return n
}

// instance is what an instance's row says, but for its context.
func (r salvagedRow) instance() (record.Instance, error) {
	inst := record.Instance{
		ID: r.text("id"), Workflow: r.text("workflow"), Version: int(r.integer("version")), DefinitionHash: r.text("definition_hash"),
		Owner: r.text("owner"), State: r.text("state"), Status: record.Status(r.text("status")),
		Seq: r.integer("seq"), Revision: r.integer("revision"), Head: hex.EncodeToString(r.blob("head")),
		CreatedAt: timeOf(r.integer("created_at")), UpdatedAt: timeOf(r.integer("updated_at")),
	}
	if err := json.Unmarshal(r.blob("facts"), &inst.Facts); err != nil {
		return inst, fmt.Errorf("its facts: %w", err)
	}
	switch {
	case inst.ID == "", inst.Workflow == "", inst.State == "", inst.Version < 1, inst.Seq < 1, inst.Revision < 1, len(inst.Head) != 64:
		return inst, errors.New("it is no instance")
	case inst.Status != record.Running && inst.Status != record.Complete && inst.Status != record.Cancelled:
		return inst, fmt.Errorf("there is no status %q", inst.Status)
	}
	return inst, nil
}
