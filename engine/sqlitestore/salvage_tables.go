package sqlitestore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
)

// salvagedTables are the tables that are copied. Other tables are derived from these.
var salvagedTables = []string{
	"definitions", "judge_configs", "instances", "contexts", "events", "snapshots", "refusals", "reviews", "anchors",
}

const (
	// maxSplits bounds how many ranges of one table are split.
	maxSplits = 1 << 20
	// rowsPerPage is about the most that a page holds of any table.
	rowsPerPage = 32
	// maxKey bounds what a key is believed: above the greatest number no row could be added.
	maxKey = 1 << 53
)

// copyTables copies what can be read of the tables of old, and says what cannot.
func copyTables(ctx context.Context, db *sql.DB) ([]Loss, error) {
	if _, err := checkIdentity(ctx, db, "old"); err != nil {
		return nil, err
	}
	var pages, tables int64
	const query = `SELECT page_count, (SELECT count(*) FROM old.sqlite_schema WHERE name IN ('instances', 'events')) FROM pragma_page_count('old')`
	if err := db.QueryRowContext(ctx, query).Scan(&pages, &tables); err != nil {
		return nil, err
	}
	if tables == 0 {
		return nil, fmt.Errorf("%w (its list of tables cannot be read)", ErrCorrupt)
	}
	lost := []Loss{}
	for _, name := range salvagedTables {
		t := tableCopy{db: db, name: name}
		if err := t.run(ctx, pages*rowsPerPage); err != nil {
			return nil, err
		}
		if t.lost.Why != "" {
			lost = append(lost, t.lost)
		}
	}
	return lost, nil
}

// tableCopy copies one table. It has no transaction: in one that has met damage, SQLite
// writes nothing more.
type tableCopy struct {
	db     *sql.DB // one connection
	name   string
	insert *sql.Stmt
	splits int
	lost   Loss
}

// run copies all at once, or else around what is damaged, which hides at most so many rows.
func (t *tableCopy) run(ctx context.Context, hidden int64) error {
	columns, err := queryAll(ctx, t.db, scanOne[string], `SELECT name FROM pragma_table_info(?1)
		WHERE name IN (SELECT name FROM pragma_table_info(?1, 'old')) ORDER BY cid`, t.name) // an older schema lacks some
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		t.lost = Loss{Table: t.name, Why: "there is no such table"}
		return nil
	}
	list := "rowid, " + strings.Join(columns, ", ")
	query := "INSERT INTO main." + t.name + " (" + list + ") SELECT " + list + " FROM old." + t.name + " WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?" //nolint:gosec // names of this program's own tables
	if t.insert, err = t.db.PrepareContext(ctx, query); err != nil {
		return err
	}
	defer func() { _ = t.insert.Close() }() // with the connection at the latest
	last, ordered := t.lastInOrder(ctx)
	if ordered {
		if copied, err := t.copyRange(ctx, Range{1, maxKey}); copied || err != nil {
			return err
		}
	}
	var top int64
	if t.db.QueryRowContext(ctx, "SELECT max(rowid) FROM old."+t.name).Scan(&top) != nil {
		top = last + hidden
	}
	all := Range{1, min(max(top, last), maxKey)}
	t.lost = Loss{Table: t.name, Why: "cannot be read"}
	if err := t.split(ctx, all); err != nil {
		return err
	}
	if len(t.lost.Ranges) == 0 {
		t.lost.Ranges, t.lost.Why = []Range{all}, "its rows are out of order, so that some may be lost"
	}
	return nil
}

// split copies the halves of a range that cannot be copied as one.
func (t *tableCopy) split(ctx context.Context, in Range) error {
	if copied, err := t.copyRange(ctx, in); copied || err != nil {
		return err
	}
	last := len(t.lost.Ranges) - 1
	switch t.splits++; {
	case in.From < in.To && t.splits < maxSplits:
		middle := in.From + (in.To-in.From)/2
		return cmp.Or(t.split(ctx, Range{in.From, middle}), t.split(ctx, Range{middle + 1, in.To}))
	case last >= 0 && t.lost.Ranges[last].To == in.From-1:
		t.lost.Ranges[last].To = in.To
	default:
		t.lost.Ranges = append(t.lost.Ranges, in)
	}
	return nil
}

// copyRange copies the rows of a range, or none of them: they must be what the range holds seen
// from either side. An error says that nothing more can be written.
func (t *tableCopy) copyRange(ctx context.Context, in Range) (copied bool, err error) {
	_, err = t.insert.ExecContext(ctx, in.From, in.To, in.To-in.From+1) // the limit keeps it from reading on behind a range
	if err == nil {
		const last = "(SELECT max(rowid) FROM %s WHERE rowid BETWEEN ?1 AND ?2)"
		query := fmt.Sprintf("SELECT "+last+" IS "+last, "main."+t.name, "old."+t.name)
		if t.db.QueryRowContext(ctx, query, in.From, in.To).Scan(&copied) == nil && copied {
			return true, nil
		}
		_, err = t.db.ExecContext(ctx, "DELETE FROM main."+t.name+" WHERE rowid BETWEEN ? AND ?", in.From, in.To) //nolint:gosec // names of this program's own tables
	}
	if known := classifyError(err); errors.Is(known, ErrDiskFull) || errors.Is(known, ErrReadOnly) || ctx.Err() != nil {
		return false, err
	}
	return false, nil
}

// lastInOrder is the last key up to which all can be read, each higher than the one before;
// all reports that none follows.
func (t *tableCopy) lastInOrder(ctx context.Context) (last int64, all bool) {
	rows, err := t.db.QueryContext(ctx, "SELECT rowid FROM old."+t.name+" NOT INDEXED ORDER BY rowid") //nolint:gosec // names of this program's own tables
	if err != nil {
		return 0, false
	}
	defer func() { _ = rows.Close() }() // where it ends is all that counts
	for key := int64(0); rows.Next(); last = key {
		if rows.Scan(&key) != nil || key <= last || key > maxKey {
			return last, false
		}
	}
	return last, rows.Err() == nil
}

type salvor struct {
	inspector
	lost []Loss
}

func (s *salvor) exec(ctx context.Context, query string, args ...any) error {
	_, err := s.ExecContext(ctx, query, args...)
	return err
}

// rowChecks read the rows of a table one by one, each behind its key, and find what is damaged.
var rowChecks = []struct {
	table, query string
	check        func(row) error
}{
	{"definitions", `SELECT rowid, ` + definitionColumns + ` FROM definitions`, func(r row) error {
		d, err := scanDefinition(r)
		return cmp.Or(err, d.CheckDocument())
	}},
	{"judge_configs", `SELECT rowid, ` + configColumns + ` FROM judge_configs`, func(r row) error {
		_, err := scanJudgeConfig(r)
		return err
	}},
	{"instances", `SELECT i.n, ` + instanceColumns + ` FROM instances i LEFT JOIN contexts c ON c.n = i.n`, func(r row) error {
		_, err := scanInstance(r)
		return err
	}},
	{"contexts", `SELECT n, context FROM contexts`, func(r row) error {
		doc, err := scanOne[[]byte](r)
		if err == nil && !json.Valid(doc) {
			err = errors.New("it is not JSON")
		}
		return err
	}},
	{"events", `SELECT pos, seq, (SELECT id FROM instances i WHERE i.n = e.n), ` + filedColumns + ` FROM events e`, checkEventRow},
	{"snapshots", `SELECT rowid, instance, context FROM snapshots`, func(r row) error {
		var doc, held []byte
		if err := r.Scan(&doc, &held); err != nil {
			return err
		}
		_, _, err := decodeSnapshot(doc, held)
		return err
	}},
	{"reviews", `SELECT rowid, ` + reviewColumns + ` FROM reviews r`, func(r row) error {
		review, err := scanReview(r)
		if err == nil {
			_, err = review.stored()
		}
		return err
	}},
}

func checkEventRow(r row) error {
	var seq int64
	var instance sql.NullString // NULL where its row is lost
	e, err := scanFiled(prefixed{r, []any{&seq, &instance}})
	if err != nil {
		return err
	}
	if seq != e.Seq || instance.Valid && instance.String != e.Instance {
		return fmt.Errorf("event %d of %s is kept as event %d of %s", e.Seq, e.Instance, seq, instance.String)
	}
	return record.VerifyEvent(e)
}

// checkRows removes the rows that show that they are damaged, and names them.
func (s *salvor) checkRows(ctx context.Context) error {
	for _, c := range rowChecks {
		known := len(s.lost)
		_, err := queryAll(ctx, s, func(r row) (none struct{}, _ error) {
			var key int64
			if err := c.check(prefixed{r, []any{&key}}); err != nil {
				s.lost = append(s.lost, Loss{Table: c.table, Ranges: []Range{{key, key}}, Why: strings.TrimPrefix(err.Error(), ErrCorrupt.Error()+": ")})
			}
			return none, nil
		}, c.query)
		if err != nil {
			return err
		}
		for _, l := range s.lost[known:] {
			if err := s.exec(ctx, "DELETE FROM "+c.table+" WHERE rowid = ?", l.Ranges[0].From); err != nil {
				return err
			}
		}
	}
	return nil
}
