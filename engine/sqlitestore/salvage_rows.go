package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

const (
	// rowsPerQuery is how many rows one query reads.
	rowsPerQuery = 256
	// maxHalvings bounds how often ranges of one table are halved.
	maxHalvings = 1 << 15
	// rowsPerPage is about the most that a page holds of any table.
	rowsPerPage = 32
)

// copyTable saves what can be read of one table.
func (s *salvor) copyTable(ctx context.Context, name string) error {
	columns, err := s.commonColumns(ctx, name)
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		s.result.Tables = append(s.result.Tables, DamagedTable{Name: name, Missing: true})
		return nil
	}
	list := strings.Join(columns, ", ")
	//nolint:gosec // the names of this program's own tables and columns
	save, err := s.tx.PrepareContext(ctx, "INSERT INTO "+name+" ("+list+") VALUES (?"+strings.Repeat(", ?", len(columns)-1)+")")
	if err != nil {
		return err
	}
	defer func() { _ = save.Close() }() // with the transaction at the latest
	damage := DamagedTable{Name: name}
	r := rangeReader{
		db: s.from, query: "SELECT rowid, " + list + " FROM " + name + " WHERE rowid ", width: len(columns), seen: map[int64]uint64{},
		take: func(key int64, values []any) (bool, error) {
			why := s.checkRow(name, columns, values)
			if why == nil {
				_, why = save.ExecContext(ctx, values...)
			}
			if isFull(why) || ctx.Err() != nil {
				return false, why
			}
			if why != nil {
				damage.Refused = append(damage.Refused, RefusedRow{key, why.Error()})
			}
			return why == nil, nil
		},
	}
	if err := r.readAll(ctx, s.pages*rowsPerPage); err != nil {
		return err
	}
	if damage.Unreadable = r.unreadable(); len(damage.Unreadable)+len(damage.Refused) > 0 {
		slices.SortFunc(damage.Refused, func(a, b RefusedRow) int { return cmp.Compare(a.Key, b.Key) })
		s.result.Tables = append(s.result.Tables, damage)
	}
	return nil
}

func isFull(err error) bool {
	return err != nil && (errors.Is(classifyError(err), ErrDiskFull) || errors.Is(classifyError(err), ErrReadOnly))
}

// commonColumns are the columns of a table in the new store that the damaged one has too;
// an older schema lacks some.
func (s *salvor) commonColumns(ctx context.Context, table string) ([]string, error) {
	var lists [2][]string
	for i, db := range []interface {
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	}{s.tx, s.from} {
		rows, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_info(?) ORDER BY cid", table)
		if err != nil {
			return nil, err
		}
		if lists[i], err = scanAll(rows, func(r row) (name string, err error) { return name, r.Scan(&name) }); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(lists[0], func(c string) bool { return !slices.Contains(lists[1], c) }), nil
}

// rangeReader reads a damaged table by ranges of its keys.
type rangeReader struct {
	db      *sql.DB
	query   string // up to the condition on rowid
	width   int    // columns without the key
	take    func(key int64, values []any) (good bool, err error)
	seen    map[int64]uint64 // bits for the keys that were read, 64 in each
	highest int64            // key of a good row
	lost    []Range
}

// readAll reads the whole table. spare is how many rows there may be behind damage.
func (r *rangeReader) readAll(ctx context.Context, spare int64) error {
	err := r.read(ctx, Range{1, math.MaxInt64})
	if err == nil || isFatal(ctx, err) {
		return err
	}
	if err := r.rows(ctx, "<= ? ORDER BY rowid DESC LIMIT ?", math.MaxInt64, math.MaxInt32, func(int64) bool { return true }); isFatal(ctx, err) {
		return err
	}
	// Larger ranges come first, so that damage in one place leaves halvings for the others.
	ranges := []Range{{1, r.highest + spare}}
	for halvings := 0; len(ranges) > 0; ranges = ranges[1:] {
		next := ranges[0]
		switch err := r.read(ctx, next); {
		case err == nil:
		case isFatal(ctx, err):
			return err
		case next.From == next.To, halvings == maxHalvings:
			r.lost = append(r.lost, next)
		default:
			halvings++
			middle := next.From + (next.To-next.From)/2
			ranges = append(ranges, Range{next.From, middle}, Range{middle + 1, next.To})
		}
	}
	return nil
}

// read reads the rows of a range. An error is that not all of them can be read, or are what
// they were: keys must grow, and the range must end with the same row from both sides.
func (r *rangeReader) read(ctx context.Context, in Range) error {
	if in.From == in.To {
		return r.rows(ctx, "= ? LIMIT ?", in.From, 1, func(key int64) bool { return key == in.From })
	}
	last, n := in.From-1, rowsPerQuery
	for n == rowsPerQuery && last < in.To {
		n = 0
		disorder := false
		err := r.rows(ctx, ">= ? ORDER BY rowid LIMIT ?", last+1, rowsPerQuery, func(key int64) bool {
			if disorder = key <= last; disorder || key > in.To {
				return false
			}
			last = key
			n++
			return true
		})
		if err != nil || disorder {
			return cmp.Or(err, ErrCorrupt)
		}
	}
	var end int64
	err := r.rows(ctx, "<= ? ORDER BY rowid DESC LIMIT ?", in.To, 1, func(key int64) bool { end = key; return false })
	if err == nil && max(end, in.From-1) != last {
		err = ErrCorrupt
	}
	return err
}

// rows takes the rows of a query that were not taken before, until want is false.
func (r *rangeReader) rows(ctx context.Context, condition string, key int64, limit int, want func(key int64) bool) (err error) {
	rows, err := r.db.QueryContext(ctx, r.query+condition, key, limit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		values, into := make([]any, r.width+1), make([]any, r.width+1)
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				values[i] = orEmpty(b) // an empty value is not NULL
			}
		}
		key, ok := values[0].(int64)
		if !ok || key < 1 {
			return ErrCorrupt
		}
		if !want(key) {
			return nil
		}
		if r.wasRead(key) {
			continue
		}
		r.seen[key/64] |= 1 << (key % 64)
		good, err := r.take(key, values[1:])
		if err != nil {
			return fatalError{err}
		}
		if good {
			r.highest = max(r.highest, key)
		}
	}
	return rows.Err()
}

func (r *rangeReader) wasRead(key int64) bool { return r.seen[key/64]&(1<<(key%64)) != 0 }

// unreadable are the lost ranges in order, without the keys that were read after all.
func (r *rangeReader) unreadable() (out []Range) {
	slices.SortFunc(r.lost, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	for _, lost := range r.lost {
		if lost.From == lost.To && r.wasRead(lost.From) {
			continue
		}
		if n := len(out); n > 0 && out[n-1].To == lost.From-1 {
			out[n-1].To = lost.To
			continue
		}
		out = append(out, lost)
	}
	return out
}

// fatalError is one that is not the damaged store's.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

func isFatal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.As(err, new(fatalError))
}

// checkRow reports how a row is damaged, as far as it shows, and corrects the columns of an
// event that its body has too.
func (s *salvor) checkRow(table string, columns []string, values []any) error {
	bytesOf := func(column string) []byte {
		b, _ := values[slices.Index(columns, column)].([]byte)
		return b
	}
	textOf := func(column string) string {
		t, _ := values[slices.Index(columns, column)].(string)
		return t
	}
	switch table {
	case "events":
		return s.checkEvent(columns, values, bytesOf)
	case "definitions":
		d := store.Definition{Name: textOf("name"), Document: bytesOf("document"), Hash: textOf("hash")}
		return d.CheckDocument()
	case "instances":
		n, _ := values[slices.Index(columns, "n")].(int64)
		s.instanceNumber(textOf("id"), n)
	case "contexts":
		if !json.Valid(bytesOf("context")) {
			return errors.New("it is not JSON")
		}
	case "snapshots":
		_, _, err := decodeSnapshot(bytesOf("instance"), bytesOf("context"))
		return err
	case "reviews":
		r := reviewRow{id: textOf("id"), body: bytesOf("body"), data: bytesOf("data")}
		_, err := r.stored()
		return err
	case "judge_configs":
		var c store.JudgeConfig
		return json.Unmarshal(bytesOf("settings"), &c.Settings)
	}
	return nil
}

func (s *salvor) checkEvent(columns []string, values []any, bytesOf func(string) []byte) error {
	e, err := record.Decode(bytesOf("body"))
	if err != nil {
		return err
	}
	e.PrevHash, e.Hash = hex.EncodeToString(bytesOf("prev_hash")), hex.EncodeToString(bytesOf("hash"))
	if broken, ok := errors.AsType[*record.BrokenError](record.VerifyEvent(e)); ok {
		return fmt.Errorf("event %d of %s: %s", broken.Seq, broken.Instance, broken.How)
	}
	var scope any
	if e.Key != nil {
		if scope, err = hex.DecodeString(e.Key.Scope); err != nil {
			return err
		}
	}
	n, _ := values[slices.Index(columns, "n")].(int64)
	for column, value := range map[string]any{
		"n": s.instanceNumber(e.Instance, n), "seq": e.Seq, "revision": e.Revision, "kind": string(e.Kind), "at": e.Time.UnixNano(), "key_scope": scope,
	} {
		values[slices.Index(columns, column)] = value
	}
	return nil
}

// instanceNumber is the number of an instance: the known one, else that of a row, or a new
// one where that is another instance's.
func (s *salvor) instanceNumber(id string, n int64) int64 {
	if known, ok := s.instances[id]; ok {
		return known
	}
	for n <= 0 || s.numbers[n] {
		n = max(n, int64(len(s.numbers))) + 1
	}
	s.instances[id], s.numbers[n] = n, true
	return n
}
