package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// Salvaged reports what Salvage recovered from a damaged store, and what is lost.
type Salvaged struct {
	// Contents describes the new store.
	Contents
	Lost []Loss `json:"lost"` // never nil
	// Log describes the replayed log if only the write-ahead log was left; otherwise nil.
	Log *ReplayedLog `json:"log,omitempty"`
}

// Whole reports whether everything was recovered.
func (s Salvaged) Whole() bool { return len(s.Lost) == 0 && (s.Log == nil || s.Log.Whole()) }

// Loss describes what is lost or unproven in a table or an instance.
type Loss struct {
	Table    string `json:"table,omitempty"`
	Instance string `json:"id,omitempty"`
	// Ranges are keys of the table, or events of the instance. Unreadable key ranges may include deleted rows, and
	// may extend past the last row.
	Ranges []Range `json:"ranges,omitempty"`
	// Was is the last known event of the instance. Is is the event at which it is now; 0 if it could not be rebuilt.
	Was int64  `json:"was,omitempty"`
	Is  int64  `json:"is,omitempty"`
	Why string `json:"why"`
}

// Range is a range of numbers, both ends inclusive.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Salvage copies what SQL can read of a damaged store into a new store. It never writes to the damaged one. It omits
// rows that are detectably damaged, folds instances from their events, and lists everything that is missing.
//
// Errors: fs.ErrNotExist, ErrExists, ErrDiskFull, store.ErrOtherSchema, and ErrCorrupt if nothing can be read.
func Salvage(ctx context.Context, path, out string) (result Salvaged, err error) {
	defer func() {
		if p := recover(); p != nil { // no damage may crash the program
			result, err = Salvaged{}, fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
		if err != nil {
			err = fmt.Errorf("salvage the store %s: %w", path, classifyError(err))
		}
	}()
	logAlone, source := IsOnlyLogLeft(path), path
	if logAlone {
		source = path + "-wal"
	}
	if err := checkTarget(source, out, false); err != nil {
		return Salvaged{}, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), ".gavel-repair-*")
	if err != nil {
		return Salvaged{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	damaged, part := filepath.Join(dir, "damaged.db"), filepath.Join(dir, "new.db")
	if logAlone {
		result.Log, err = replayLog(source, damaged)
	} else {
		err = copyBoth(path, damaged)
	}
	if err != nil {
		return Salvaged{}, err
	}
	if err := result.fill(ctx, damaged, part); err != nil && logAlone {
		return Salvaged{}, fmt.Errorf("%w; the log contains %d of %d pages", err, result.Log.Pages-result.Log.MissingPages, result.Log.Pages)
	} else if err != nil {
		return Salvaged{}, err
	}
	result.Bytes = fileSize(part)
	return result, errors.Join(syncFile(part), publishFile(part, out, false))
}

func emptyStore(ctx context.Context, path string) error {
	s, err := Open(ctx, Config{Path: path, indexPause: -1})
	if err != nil {
		return err
	}
	return s.Close()
}

func (r *Salvaged) fill(ctx context.Context, damaged, part string) (err error) {
	if err := emptyStore(ctx, part); err != nil {
		return err
	}
	// writable_schema lets SQLite use the readable tables of a damaged schema, and files that were truncated.
	db, err := sql.Open(driverName, dataSourceName(part, "synchronous(OFF)", "writable_schema(ON)", "trusted_schema(OFF)", "cell_size_check(ON)", "temp_store(memory)", "secure_delete(FAST)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	list, err := completeTableList(ctx, db, part, damaged)
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "ATTACH ? AS old", damaged); err != nil {
		return err
	}
	lost, err := copyTables(ctx, db)
	if err != nil {
		return err
	}
	lost = append(list, lost...)
	if _, err := db.ExecContext(ctx, "DETACH old"); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	s := salvager{inspector: inspector{Tx: tx}, lost: lost}
	for _, step := range []func(context.Context) error{s.checkIDs, s.checkRows, s.checkInstances, s.pages, s.count} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	r.Contents, r.Lost = s.found, s.lost
	if err := tx.Commit(); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

// salvagedTables are the tables that are copied. The others are derived from these, or useless in a new store
// (counters, leases).
var salvagedTables = []string{
	"definitions", "judge_configs", "instances", "contexts", "events", "snapshots", "refusals", "reviews", "anchors", "cursors", "dead_letters", "data_keys",
}

const (
	// maxSplits limits how many ranges of a table are split.
	maxSplits = 1 << 20
	// rowsPerPage is approximately the maximum number of rows per page, for any table.
	rowsPerPage = 32
	// maxKey is the largest plausible key: no row could be added above the largest possible number.
	maxKey = 1 << 53
)

// copyTables copies the readable rows of old's tables, and returns what cannot be read.
func copyTables(ctx context.Context, db *sql.DB) ([]Loss, error) {
	if err := checkIdentity(ctx, db, "old"); err != nil {
		return nil, err
	}
	var pages int64
	if err := db.QueryRowContext(ctx, `SELECT page_count FROM pragma_page_count('old')`).Scan(&pages); err != nil {
		return nil, err
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

// tableCopy copies one table. It uses no transaction: once SQLite has found damage in a transaction, it writes
// nothing more in it.
type tableCopy struct {
	db           *sql.DB // a single connection
	name         string
	insert       *sql.Stmt // inserts the rows of a range
	readsTheSame *sql.Stmt // whether a range of the old file, read backwards, has as many rows as were copied, and ends at the same key
	remove       *sql.Stmt // deletes the rows of a range again
	splits       int
	lost         Loss
}

// run copies the whole table, or else everything around the damage. hidden limits the number of rows that the damage
// may hide.
func (t *tableCopy) run(ctx context.Context, hidden int64) error {
	columns, err := queryAll(ctx, t.db, scanOne[string], `SELECT name FROM pragma_table_info(?1)
		WHERE name IN (SELECT name FROM pragma_table_info(?1, 'old')) ORDER BY cid`, t.name) // a damaged schema may lack columns
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		t.lost = Loss{Table: t.name, Why: "there is no such table"}
		return nil
	}
	list := "rowid, " + strings.Join(columns, ", ")
	const lastKey = "(SELECT max(rowid) FROM %s WHERE rowid BETWEEN ?1 AND ?2)"
	for _, s := range []struct {
		statement **sql.Stmt
		query     string
	}{
		// SQLite would recompile the statement for each literal limit, but not for an expression.
		{&t.insert, "INSERT INTO main." + t.name + " (" + list + ") SELECT " + list + " FROM old." + t.name + " WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ? + 0"},
		{&t.readsTheSame, fmt.Sprintf("SELECT "+lastKey+" IS "+lastKey+" AND ?3 = (SELECT count(*) FROM (SELECT rowid FROM old.%s WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid DESC LIMIT ?4 + 0))",
			"main."+t.name, "old."+t.name, t.name)},
		{&t.remove, "DELETE FROM main." + t.name + " WHERE rowid BETWEEN ? AND ?"},
	} {
		statement, err := t.db.PrepareContext(ctx, s.query)
		if err != nil {
			return err
		}
		defer func() { _ = statement.Close() }() // closed with the connection at the latest
		*s.statement = statement
	}
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
		t.lost.Ranges, t.lost.Why = []Range{all}, "its rows are out of order, so some may be lost"
	}
	return nil
}

// split copies the halves of a range that cannot be copied as a whole.
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

// copyRange copies all rows of a range or none. Keys that are out of order can end a range early, so it is also read
// backwards. An error means that nothing more can be written.
func (t *tableCopy) copyRange(ctx context.Context, in Range) (copied bool, err error) {
	limit := in.To - in.From + 1 // keeps a damaged table from reading past the range
	done, err := t.insert.ExecContext(ctx, in.From, in.To, limit)
	if err == nil {
		count, _ := done.RowsAffected() // this driver always knows
		if t.readsTheSame.QueryRowContext(ctx, in.From, in.To, count, limit).Scan(&copied) == nil && copied {
			return true, nil
		}
		_, err = t.remove.ExecContext(ctx, in.From, in.To)
	}
	if known := classifyError(err); errors.Is(known, ErrDiskFull) || errors.Is(known, ErrReadOnly) || ctx.Err() != nil {
		return false, err
	}
	return false, nil
}

// lastInOrder returns the last key up to which all rows are readable and in ascending order; all reports that no rows
// follow.
func (t *tableCopy) lastInOrder(ctx context.Context) (last int64, all bool) {
	rows, err := t.db.QueryContext(ctx, "SELECT rowid FROM old."+t.name+" NOT INDEXED ORDER BY rowid") //nolint:gosec // names of this program's own tables
	if err != nil {
		return 0, false
	}
	defer func() { _ = rows.Close() }() // only the position where it ends matters
	for key := int64(0); rows.Next(); last = key {
		if rows.Scan(&key) != nil || key <= last || key > maxKey {
			return last, false
		}
	}
	return last, rows.Err() == nil
}

type salvager struct {
	inspector
	lost []Loss
}

func (s *salvager) exec(ctx context.Context, query string, args ...any) error {
	_, err := s.ExecContext(ctx, query, args...)
	return err
}

// rowChecks find damaged rows. Each query returns the rows of a table, with their key as the first column.
var rowChecks = []struct {
	table, query string
	check        func(row) error
}{
	{"definitions", `SELECT rowid, ` + definitionColumns + ` FROM definitions`, func(r row) error {
		d, err := scanDefinition(r)
		return cmp.Or(err, d.CheckDocument())
	}},
	{"judge_configs", `SELECT rowid, ` + configColumns + ` FROM judge_configs`, checkScan(scanJudgeConfig)},
	{"instances", `SELECT i.n, ` + instanceColumns + ` FROM instances i LEFT JOIN contexts c ON c.n = i.n`, checkScan(scanInstance)},
	{"contexts", `SELECT n, context FROM contexts`, func(r row) error {
		doc, err := scanOne[[]byte](r)
		if err == nil && !json.Valid(doc) {
			err = errors.New("it is not JSON")
		}
		return err
	}},
	{"events", `SELECT pos, seq, (SELECT id FROM instances i WHERE i.n = e.n), ` + indexedEventColumns + ` FROM events e`, checkEventRow},
	{"snapshots", `SELECT rowid, instance, context FROM snapshots`, func(r row) error {
		var doc, held []byte
		if err := r.Scan(&doc, &held); err != nil {
			return err
		}
		_, err := rows.DecodeSnapshot(doc, held)
		return wrapCorrupt(err)
	}},
	{"reviews", `SELECT rowid, ` + reviewColumns + ` FROM reviews r`, func(r row) error {
		review, err := scanReview(r)
		if err == nil {
			_, err = rows.DecodeReview(review.id, review.body, review.data)
			err = wrapCorrupt(err)
		}
		return err
	}},
	{"cursors", `SELECT rowid, ` + cursorColumns + ` FROM cursors`, checkScan(scanCursor)},
	{"dead_letters", `SELECT rowid, ` + deadLetterColumns + ` FROM dead_letters`, checkScan(scanDeadLetter)},
	{"data_keys", `SELECT rowid, ` + dataKeyColumns + ` FROM data_keys`, checkScan(scanDataKey)},
}

func checkScan[T any](scan func(row) (T, error)) func(row) error {
	return func(r row) error { _, err := scan(r); return err }
}

func checkEventRow(r row) error {
	var seq int64
	var instance sql.NullString // NULL if the instance row is lost
	e, err := scanIndexedEvent(prefixScanner{r, []any{&seq, &instance}})
	if err != nil {
		return err
	}
	if seq != e.Seq || instance.Valid && instance.String != e.Instance {
		return fmt.Errorf("event %d of %s is stored as event %d of %s", e.Seq, e.Instance, seq, instance.String)
	}
	return record.VerifyEvent(e)
}

// checkIDs deletes the rows of instances whose id none of their events has, so that they are rebuilt from these.
// Otherwise the events would be taken for damaged.
func (s *salvager) checkIDs(ctx context.Context) error {
	confirmed := map[int64]bool{}
	_, err := queryAll(ctx, s, func(r row) (none struct{}, _ error) {
		var n int64
		var id string
		e, err := scanEvent(prefixScanner{r, []any{&n, &id}})
		if err == nil && record.VerifyEvent(e) == nil {
			confirmed[n] = confirmed[n] || e.Instance == id
		}
		return none, nil
	}, `SELECT e.n, i.id, `+eventColumns+` FROM events e JOIN instances i ON i.n = e.n`)
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(confirmed)) {
		if confirmed[n] {
			continue
		}
		s.lost = append(s.lost, Loss{Table: "instances", Ranges: []Range{{n, n}}, Why: "its id is not that of its events"})
		if err := s.exec(ctx, `DELETE FROM instances WHERE n = ?`, n); err != nil {
			return err
		}
	}
	return nil
}

// checkRows deletes detectably damaged rows and records them as lost.
func (s *salvager) checkRows(ctx context.Context) error {
	for _, c := range rowChecks {
		known := len(s.lost)
		_, err := queryAll(ctx, s, func(r row) (none struct{}, _ error) {
			var key int64
			if err := c.check(prefixScanner{r, []any{&key}}); err != nil {
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

// checkInstances sets every instance to the fold of its events, up to the first gap. An instance whose row is further
// ahead is left unchanged.
func (s *salvager) checkInstances(ctx context.Context) error {
	numbers, err := queryAll(ctx, s, scanOne[int64], `SELECT n FROM instances UNION SELECT n FROM events`)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if err := s.checkInstance(ctx, n); err != nil {
			return err
		}
	}
	return errors.Join(s.exec(ctx, `DELETE FROM contexts WHERE n NOT IN (SELECT n FROM instances)`),
		s.exec(ctx, `DELETE FROM snapshots WHERE n NOT IN (SELECT n FROM instances)`))
}

func (s *salvager) checkInstance(ctx context.Context, n int64) error {
	row, err := scanInstance(s.QueryRowContext(ctx, `SELECT `+instanceColumns+` FROM instances i LEFT JOIN contexts c ON c.n = i.n WHERE i.n = ?`, n))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	events, err := queryAll(ctx, s, scanEvent, `SELECT `+eventColumns+` FROM events e WHERE e.n = ? ORDER BY e.seq`, n)
	if err != nil {
		return err
	}
	floor, err := s.floor(ctx, n)
	if err != nil {
		return err
	}
	// Events that were removed deliberately must not come back from a page that was not overwritten.
	if err := s.exec(ctx, `DELETE FROM events WHERE n = ? AND seq <= ?`, n, floor.Seq); err != nil {
		return err
	}
	events = slices.DeleteFunc(events, func(e record.Event) bool { return e.Seq <= floor.Seq })
	now, lost := foldUpToGap(floor, events), Loss{Instance: row.ID, Was: row.Seq}
	if len(events) > 0 {
		last := events[len(events)-1]
		lost.Instance, lost.Was = last.Instance, max(lost.Was, last.Seq)
	}
	switch {
	case len(row.Context) > 0 && row.Seq > now.Seq:
		now, lost.Why = row, "no events confirm its state"
	case now.Seq == 0:
		lost.Why = "could not be rebuilt"
		err = s.exec(ctx, `DELETE FROM instances WHERE n = ?`, n)
	case record.DigestState(now) != record.DigestState(row):
		lost.Why = "rebuilt from its events"
		err = s.replaceInstance(ctx, n, now)
	}
	if lost.Was > now.Seq { // a new event may take the number of one that follows a gap
		lost.Why = cmp.Or(lost.Why, "its last events do not follow")
		err = errors.Join(err, s.exec(ctx, `DELETE FROM events WHERE n = ? AND seq > ?`, n, now.Seq),
			s.exec(ctx, `DELETE FROM snapshots WHERE n = ? AND revision >= ?`, n, now.Revision))
	}
	var waiting []string
	for _, open := range now.Facts.Reviews {
		waiting = append(waiting, open.ID)
	}
	for _, call := range now.Facts.Calls {
		if !call.IsOpen() {
			waiting = append(waiting, call.Review)
		}
	}
	for _, review := range waiting {
		known, findErr := queryAll(ctx, s, scanOne[int], `SELECT 1 FROM reviews WHERE id = ?`, review)
		if err = errors.Join(err, findErr); len(known) == 0 {
			lost.Why = strings.TrimPrefix(lost.Why+"; review "+review+" is lost", "; ")
		}
	}
	if lost.Why != "" {
		lost.Is, lost.Ranges = now.Seq, listGaps(events, Range{floor.Seq + 1, lost.Was}, now.Seq)
		s.lost = append(s.lost, lost)
	}
	return err
}

// listGaps lists the missing events in a range; events above last were not kept.
func listGaps(events []record.Event, in Range, last int64) (gaps []Range) {
	for _, e := range events {
		if e.Seq > last {
			break
		}
		if e.Seq > in.From {
			gaps = append(gaps, Range{in.From, e.Seq - 1})
		}
		in.From = e.Seq + 1
	}
	if in.From <= in.To {
		gaps = append(gaps, in)
	}
	return gaps
}

func (s *salvager) replaceInstance(ctx context.Context, n int64, i record.Instance) error {
	head, err := hex.DecodeString(i.Head)
	facts, jsonErr := json.Marshal(i.Facts)
	if err := errors.Join(err, jsonErr); err != nil {
		return err
	}
	return errors.Join(s.exec(ctx, `INSERT OR REPLACE INTO instances (n, id, workflow, version, definition_hash, owner, created_at,
		updated_at, seq, revision, state, status, head, facts, calls, subject) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, n, i.ID, i.Workflow, i.Version,
		i.DefinitionHash, i.Owner, i.CreatedAt.UnixNano(), i.UpdatedAt.UnixNano(), i.Seq, i.Revision, i.State, string(i.Status), head, facts, len(i.Facts.Calls), textOrNull(i.Subject)),
		s.exec(ctx, `INSERT OR REPLACE INTO contexts (n, context) VALUES (?, ?)`, n, rows.OrEmpty(i.Context)))
}

// foldUpToGap folds a history up to its first gap. It returns the zero Instance if the beginning is missing.
func foldUpToGap(floor record.Instance, events []record.Event) record.Instance {
	chain := record.NewChainFrom(floor)
	now, err := record.FoldFrom(floor, func(yield func(record.Event, error) bool) {
		for _, e := range events {
			if chain.Add(e) != nil || !yield(e, nil) {
				return
			}
		}
	}, 0)
	if err != nil || chain.Seq() == floor.Seq { // it reaches back before the floor, or has no beginning
		return record.Instance{}
	}
	return now
}
