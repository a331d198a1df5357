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
	// chunkKeys is how many keys are read together next to damage.
	chunkKeys = 256
	// maxChunks bounds how many damaged chunks of one table are read key by key.
	maxChunks = 1 << 12
	// rowsPerPage is about the most that a page holds of any table.
	rowsPerPage = 32
)

// tableCopy saves what can be read of one table.
type tableCopy struct {
	s       *salvor
	columns []string
	save    *sql.Stmt
	seen    map[int64]uint64 // bits for the keys that were read, 64 in each
	highest int64            // key of a saved row
	damage  DamagedTable
}

func (s *salvor) copyTable(ctx context.Context, name string) error {
	t := tableCopy{s: s, seen: map[int64]uint64{}, damage: DamagedTable{Name: name}}
	var err error
	const columns = "SELECT name FROM pragma_table_info(?) ORDER BY cid"
	if t.columns, err = queryAll(ctx, s.tx, scanOne[string], columns, name); err != nil {
		return err
	}
	there, err := queryAll(ctx, s.from, scanOne[string], columns, name)
	if err != nil {
		return err
	}
	t.columns = slices.DeleteFunc(t.columns, func(c string) bool { return !slices.Contains(there, c) }) // an older schema lacks some
	if t.damage.Missing = len(t.columns) == 0; !t.damage.Missing {
		//nolint:gosec // the names of this program's own tables and columns
		query := "INSERT INTO " + name + " (" + strings.Join(t.columns, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(t.columns)-1) + ")"
		if t.save, err = s.tx.PrepareContext(ctx, query); err != nil {
			return err
		}
		defer func() { _ = t.save.Close() }() // with the transaction at the latest
		if err := t.readAll(ctx); err != nil {
			return err
		}
	}
	slices.SortFunc(t.damage.Refused, func(a, b RefusedRow) int { return cmp.Compare(a.Key, b.Key) })
	if d := t.damage; d.Missing || len(d.Unreadable)+len(d.Refused) > 0 {
		s.result.Tables = append(s.result.Tables, d)
	}
	return nil
}

// readAll reads the whole table: at once, or else in chunks, and key by key where a chunk is
// damaged. Chunks grow while they can be read, because keys can be far apart.
func (t *tableCopy) readAll(ctx context.Context) error {
	err := t.read(ctx, Range{1, math.MaxInt64})
	if err == nil || isFatal(ctx, err) {
		return err
	}
	if err := t.rows(ctx, "<= ? ORDER BY rowid DESC", math.MaxInt64, func(int64) bool { return true }); isFatal(ctx, err) {
		return err
	}
	end := t.highest + t.s.pages*rowsPerPage // as many rows as there may be behind damage
	size, damaged := int64(chunkKeys), 0
	for from := int64(1); from <= end; {
		chunk := Range{from, min(from+size-1, end)}
		switch err := t.read(ctx, chunk); {
		case isFatal(ctx, err):
			return err
		case err == nil:
			from, size = chunk.To+1, 2*size
		case size > chunkKeys:
			size = chunkKeys
		case damaged == maxChunks:
			t.lose(Range{from, end})
			return nil
		default:
			damaged++
			for ; from <= chunk.To; from++ {
				err := t.rows(ctx, "= ?", from, func(key int64) bool { return key == from })
				if isFatal(ctx, err) {
					return err
				}
				if err != nil && t.seen[from/64]&(1<<(from%64)) == 0 {
					t.lose(Range{from, from})
				}
			}
		}
	}
	return nil
}

// lose notes that keys cannot be read. They come in order.
func (t *tableCopy) lose(r Range) {
	if lost := t.damage.Unreadable; len(lost) > 0 && lost[len(lost)-1].To == r.From-1 {
		lost[len(lost)-1].To = r.To
		return
	}
	t.damage.Unreadable = append(t.damage.Unreadable, r)
}

// read reads the rows of a range. An error is that not all of them can be read, or are what
// they were: keys must grow, and the range must end with the same row from both sides.
func (t *tableCopy) read(ctx context.Context, in Range) error {
	last, ordered := in.From-1, true
	err := t.rows(ctx, ">= ? ORDER BY rowid", in.From, func(key int64) bool {
		if ordered = key > last; !ordered || key > in.To {
			return false
		}
		last = key
		return true
	})
	if err != nil {
		return err
	}
	end := in.From - 1
	err = t.rows(ctx, "<= ? ORDER BY rowid DESC", in.To, func(key int64) bool { end = max(end, key); return false })
	if err == nil && (!ordered || end != last) {
		err = ErrCorrupt
	}
	return err
}

// rows saves the rows of a query that were not read before, until want is false.
func (t *tableCopy) rows(ctx context.Context, condition string, key int64, want func(key int64) bool) (err error) {
	//nolint:gosec // the names of this program's own tables and columns
	query := "SELECT rowid, " + strings.Join(t.columns, ", ") + " FROM " + t.damage.Name + " WHERE rowid " + condition
	rows, err := t.s.from.QueryContext(ctx, query, key)
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
			if err := t.keep(ctx, key, values[1:]); err != nil {
				return fatalError{err}
			}
		}
	}
	return rows.Err()
}

// keep saves a row, or notes why it is damaged. An error is the new store's.
func (t *tableCopy) keep(ctx context.Context, key int64, values []any) error {
	row := salvagedRow{}
	for i, v := range values {
		if b, ok := v.([]byte); ok {
			v = orEmpty(b) // an empty value is not NULL
		}
		row[t.columns[i]] = v
	}
	why := t.s.checkRow(t.damage.Name, row)
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
		return why
	default:
		t.damage.Refused = append(t.damage.Refused, RefusedRow{key, why.Error()})
	}
	return nil
}

// fatalError is one that is not the damaged store's.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

func isFatal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.As(err, new(fatalError))
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
