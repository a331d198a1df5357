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
	// maxSplits bounds how many ranges of one table are split.
	maxSplits = 1 << 20
	// rowsPerPage is about the most that a page holds of any table.
	rowsPerPage = 32
)

// tableCopy saves what can be read of one table.
type tableCopy struct {
	s          *salvor
	name       string
	columns    []string
	save       *sql.Stmt
	seen       map[int64]uint64 // bits for the keys that were read, 64 in each
	highest    int64            // key of a saved row
	splits     int
	failed     error // of the new store
	unreadable []Range
	lost       []Loss
}

func (s *salvor) copyTable(ctx context.Context, name string) error {
	const columns = "SELECT name FROM pragma_table_info(?) ORDER BY cid"
	present, err := queryAll(ctx, s.from, scanOne[string], columns, name)
	if err != nil {
		return err
	}
	if len(present) == 0 {
		s.result.Lost = append(s.result.Lost, Loss{Table: name, Why: "there is no such table"})
		return nil
	}
	t := tableCopy{s: s, name: name, seen: map[int64]uint64{}}
	if t.columns, err = queryAll(ctx, s.tx, scanOne[string], columns, name); err != nil {
		return err
	}
	t.columns = slices.DeleteFunc(t.columns, func(c string) bool { return !slices.Contains(present, c) }) // an older schema lacks some
	//nolint:gosec // the names of this program's own tables and columns
	query := "INSERT INTO " + name + " (" + strings.Join(t.columns, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(t.columns)-1) + ")"
	if t.save, err = s.tx.PrepareContext(ctx, query); err != nil {
		return err
	}
	defer func() { _ = t.save.Close() }() // with the transaction at the latest
	if err := t.readAll(ctx); err != nil {
		return err
	}
	slices.SortFunc(t.lost, func(a, b Loss) int { return cmp.Compare(a.Ranges[0].From, b.Ranges[0].From) })
	s.result.Lost = append(s.result.Lost, t.lost...)
	return nil
}

// readAll reads the whole table at once, or else around what is damaged.
func (t *tableCopy) readAll(ctx context.Context) error {
	all := Range{1, math.MaxInt64}
	if t.read(ctx, all) == nil {
		return nil
	}
	_ = t.rows(ctx, all, "DESC", func(int64) bool { return true }) // up to the damage
	all.To = min(t.highest, maxPosition) + t.s.pages*rowsPerPage   // as many rows as there may be behind damage
	t.split(ctx, all)
	switch {
	case len(t.unreadable) > 0:
		t.lost = append(t.lost, Loss{Table: t.name, Ranges: t.unreadable, Why: "cannot be read"})
	case len(t.lost) == 0:
		t.lost = []Loss{{Table: t.name, Ranges: []Range{all}, Why: "its rows are out of order, so that some may be lost"}}
	}
	return cmp.Or(ctx.Err(), t.failed)
}

// split reads a range, and each half of one that is damaged.
func (t *tableCopy) split(ctx context.Context, in Range) {
	if ctx.Err() != nil || t.failed != nil || t.read(ctx, in) == nil {
		return
	}
	last := len(t.unreadable) - 1
	switch t.splits++; {
	case in.From < in.To && t.splits < maxSplits:
		middle := in.From + (in.To-in.From)/2
		t.split(ctx, Range{in.From, middle})
		t.split(ctx, Range{middle + 1, in.To})
	case in.From == in.To && t.seen[in.From/64]&(1<<(in.From%64)) != 0: // what follows it is damaged
	case last >= 0 && t.unreadable[last].To == in.From-1:
		t.unreadable[last].To = in.To
	default:
		t.unreadable = append(t.unreadable, in)
	}
}

// read reads the rows of a range. An error is that not all of them can be read, or are what
// they were: keys must grow, and the range must end with the same row from both sides.
func (t *tableCopy) read(ctx context.Context, in Range) error {
	last, end, ordered := in.From-1, in.From-1, true
	if err := t.rows(ctx, in, "ASC", func(key int64) bool {
		ordered = key > last
		last = max(last, key)
		return ordered
	}); err != nil {
		return err
	}
	err := t.rows(ctx, in, "DESC", func(key int64) bool { end = max(end, key); return false })
	if err == nil && (!ordered || end != last) {
		err = ErrCorrupt
	}
	return err
}

// rows saves the rows of a range that were not read before, until want is false.
func (t *tableCopy) rows(ctx context.Context, in Range, order string, want func(key int64) bool) (err error) {
	//nolint:gosec // the names of this program's own tables and columns
	query := "SELECT rowid, " + strings.Join(t.columns, ", ") + " FROM " + t.name + " WHERE rowid BETWEEN ? AND ? ORDER BY rowid " + order
	rows, err := t.s.from.QueryContext(ctx, query, in.From, in.To)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	values, into := make([]any, len(t.columns)+1), make([]any, len(t.columns)+1)
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		key, ok := values[0].(int64)
		if !ok || key < 1 {
			return ErrCorrupt
		}
		if !want(key) {
			return nil
		}
		if bit := uint64(1) << (key % 64); t.seen[key/64]&bit == 0 {
			t.seen[key/64] |= bit
			if t.keep(ctx, key, values[1:]); t.failed != nil {
				return t.failed
			}
		}
	}
	return rows.Err()
}

// keep saves a row, or notes why it is damaged.
func (t *tableCopy) keep(ctx context.Context, key int64, values []any) {
	row := salvagedRow{}
	for i, v := range values {
		if b, ok := v.([]byte); ok {
			v = orEmpty(b) // an empty value is not NULL
		}
		row[t.columns[i]] = v
	}
	why := t.s.checkRow(t.name, row)
	if why == nil {
		for i, c := range t.columns {
			values[i] = row[c]
		}
		_, why = t.save.ExecContext(ctx, values...)
	}
	switch known := classifyError(why); {
	case why == nil:
		t.highest = max(t.highest, key)
	case errors.Is(known, ErrDiskFull), errors.Is(known, ErrReadOnly), ctx.Err() != nil:
		t.failed = why
	default:
		t.lost = append(t.lost, Loss{Table: t.name, Ranges: []Range{{key, key}}, Why: why.Error()})
	}
}

// salvagedRow are values by their columns.
type salvagedRow map[string]any

func (r salvagedRow) bytes(column string) []byte { b, _ := r[column].([]byte); return b }

func (r salvagedRow) text(column string) string { t, _ := r[column].(string); return t }

// checkRow reports how a row is damaged, as far as it shows, and corrects the columns of an
// event that its body has too.
func (s *salvor) checkRow(table string, row salvagedRow) error {
	switch table {
	case "events":
		return s.checkEvent(row)
	case "definitions":
		return store.Definition{Name: row.text("name"), Document: row.bytes("document"), Hash: row.text("hash")}.CheckDocument()
	case "instances":
		n, _ := row["n"].(int64)
		s.instanceNumber(row.text("id"), n)
	case "contexts":
		if !json.Valid(row.bytes("context")) {
			return errors.New("it is not JSON")
		}
	case "snapshots":
		_, _, err := decodeSnapshot(row.bytes("instance"), row.bytes("context"))
		return err
	case "reviews":
		_, err := reviewRow{id: row.text("id"), body: row.bytes("body"), data: row.bytes("data")}.stored()
		return err
	case "judge_configs":
		var c store.JudgeConfig
		return json.Unmarshal(row.bytes("settings"), &c.Settings)
	}
	return nil
}

func (s *salvor) checkEvent(row salvagedRow) error {
	e, err := record.Decode(row.bytes("body"))
	if err != nil {
		return err
	}
	e.PrevHash, e.Hash = hex.EncodeToString(row.bytes("prev_hash")), hex.EncodeToString(row.bytes("hash"))
	if broken, ok := errors.AsType[*record.BrokenError](record.VerifyEvent(e)); ok {
		return fmt.Errorf("event %d of %s: %s", broken.Seq, broken.Instance, broken.How)
	}
	row["key_scope"] = nil
	if e.Key != nil {
		if row["key_scope"], err = hex.DecodeString(e.Key.Scope); err != nil {
			return err
		}
	}
	n, _ := row["n"].(int64)
	row["n"], row["seq"], row["revision"], row["kind"], row["at"] = s.instanceNumber(e.Instance, n), e.Seq, e.Revision, string(e.Kind), e.Time.UnixNano()
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
