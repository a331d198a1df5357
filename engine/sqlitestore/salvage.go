package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Salvaged reports what Salvage saved of a damaged store, and what is lost.
type Salvaged struct {
	// Contents of the new store.
	Contents
	Lost []Loss `json:"lost"` // never nil
	// Log is what was replayed where only the write-ahead log was left; nil elsewhere.
	Log *ReplayedLog `json:"log,omitempty"`
}

// Whole reports whether everything was saved.
func (s Salvaged) Whole() bool { return len(s.Lost) == 0 && (s.Log == nil || s.Log.Whole()) }

// Loss is what is lost or not proven of a table, or of an instance.
type Loss struct {
	Table    string `json:"table,omitempty"`
	Instance string `json:"workflowId,omitempty"`
	// Ranges are keys of the table, or events of the instance. Keys that cannot be read may
	// include removed rows, and go beyond the last one.
	Ranges []Range `json:"ranges,omitempty"`
	// Was is the last known event of the instance, Is the one at which it is now: 0 if it
	// could not be rebuilt.
	Was int64  `json:"was,omitempty"`
	Is  int64  `json:"is,omitempty"`
	Why string `json:"why"`
}

// Range is a range of numbers, both ends included.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// salvagedTables are the tables that are copied, in this order: events need the numbers of
// the instances. Other tables are derived from these.
var salvagedTables = []string{
	"definitions", "judge_configs", "instances", "contexts", "events", "snapshots", "refusals", "reviews", "anchors",
}

// Salvage copies what SQL can read of a damaged store into a new one; it never writes to
// the damaged store. Rows are read by ranges of their keys, which are split around damage.
// An event is saved when its hash covers it, a definition when it is what its hash says;
// instances and snapshots are folded from events. Verifying the new store finds the gaps
// that the result names, and no others.
//
// Errors: fs.ErrNotExist, ErrExists, ErrDiskFull, store.ErrNewerSchema, and ErrCorrupt when
// nothing can be read.
func Salvage(ctx context.Context, path, out string) (result Salvaged, err error) {
	defer func() {
		if p := recover(); p != nil { // whatever the damage, the program goes on
			result, err = Salvaged{}, fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
		if err != nil {
			err = fmt.Errorf("salvage the store %s: %w", path, classifyError(err))
		}
	}()
	logAlone := IsLogAlone(path)
	source := path
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
	s := salvor{instances: map[string]int64{}, numbers: map[int64]bool{}, result: Salvaged{Lost: []Loss{}}}
	if logAlone {
		s.result.Log, err = replayLog(source, damaged)
	} else if err = copyBoth(path, damaged); err == nil {
		err = fillUp(damaged)
	}
	if err != nil {
		return Salvaged{}, err
	}
	if err := s.run(ctx, damaged, part); err != nil {
		if log := s.result.Log; log != nil {
			err = fmt.Errorf("%w; the log holds %d of %d pages", err, log.Pages-log.MissingPages, log.Pages)
		}
		return Salvaged{}, err
	}
	s.result.Bytes = fileSize(part)
	return s.result, errors.Join(syncFile(part), publishFile(part, out, false))
}

// fillUp gives a file that was cut off the length that its header says: SQLite reads no
// other. The missing pages are empty then, and found to be damaged.
func fillUp(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var pages [4]byte
	if _, err := f.ReadAt(pages[:], 28); err != nil {
		return fmt.Errorf("%w (it has no header)", ErrCorrupt)
	}
	const believed = 1 << 40 // the header may be damaged too
	if length := int64(binary.BigEndian.Uint32(pages[:])) * pageSize4K; length > fileSize(path) && length < believed {
		return f.Truncate(length)
	}
	return nil
}

// emptyStore makes a store with the present schema in one file.
func emptyStore(ctx context.Context, path string) error {
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	return s.Close()
}

// salvor is one run of Salvage.
type salvor struct {
	from  *sql.DB    // one connection
	tx    *sql.Tx    // of the new store
	st    statements // of tx
	pages int64      // of the damaged file
	// instances are the numbers that stand for instances in rows, numbers those in use.
	instances map[string]int64
	numbers   map[int64]bool
	result    Salvaged
}

func (s *salvor) run(ctx context.Context, damaged, part string) (err error) {
	if err := emptyStore(ctx, part); err != nil {
		return err
	}
	// writable_schema has SQLite use the tables that it can read of a damaged schema.
	if s.from, err = sql.Open(driverName, dataSourceName(damaged, "writable_schema(ON)", "trusted_schema(OFF)", "cell_size_check(ON)", "temp_store(memory)")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.from.Close()) }()
	s.from.SetMaxOpenConns(1)
	if err := s.checkSource(ctx); err != nil {
		return err
	}
	to, err := sql.Open(driverName, dataSourceName(part, "synchronous(OFF)", "temp_store(memory)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	to.SetMaxOpenConns(1)
	if s.tx, err = to.BeginTx(ctx, nil); err != nil {
		return err
	}
	defer func() { _ = s.tx.Rollback() }() // after the commit it does nothing
	if err := prepareAll(ctx, s.tx, s.st.all()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.st.close()) }()
	for _, table := range salvagedTables {
		if err := s.copyTable(ctx, table); err != nil {
			return err
		}
	}
	in := inspector{Tx: s.tx}
	for _, step := range []func(context.Context) error{s.checkInstances, s.skipPositions, in.pages, in.count} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.result.Contents = in.found
	if err := s.tx.Commit(); err != nil {
		return err
	}
	_, err = to.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

// checkSource checks that the damaged file is a store, and none that a newer program wrote:
// parts of that would be lost without a word.
func (s *salvor) checkSource(ctx context.Context) error {
	known, err := migrations.ReadDir("migrations")
	if err != nil {
		return err
	}
	var tables, id, version int
	for query, into := range map[string]any{
		"SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('instances', 'events')": &tables,
		"PRAGMA application_id": &id, "PRAGMA user_version": &version, "PRAGMA page_count": &s.pages,
	} {
		if err := s.from.QueryRowContext(ctx, query).Scan(into); err != nil {
			return err
		}
	}
	const believed = 1000 // the header may be damaged too
	switch {
	case id == applicationID && version > len(known) && version < believed:
		return fmt.Errorf("%w: schema %d, this program knows up to %d; use a newer one", store.ErrNewerSchema, version, len(known))
	case tables == 0 && id == applicationID:
		return fmt.Errorf("%w (its list of tables cannot be read)", ErrCorrupt)
	case tables == 0:
		return fmt.Errorf("%w (it has no events)", ErrNotAStore)
	}
	return nil
}

// maxPosition bounds what a key or an anchor is believed: above the greatest number no event
// could be added.
const maxPosition = 1 << 53

// skipPositions gives the newest event the position of the newest anchor, if it is below:
// anchors say by positions what they cover, so those of lost events must not be used again.
func (s *salvor) skipPositions(ctx context.Context) error {
	notes, err := queryAll(ctx, s.tx, scanOne[string], `SELECT note FROM anchors`)
	if err != nil {
		return err
	}
	var covered int64
	for _, note := range notes {
		text, err := record.ReadNoteText(note)
		if err != nil {
			continue // verifying says what is wrong with it
		}
		if a, err := record.ParseAnchor(text); err == nil && a.Events < maxPosition {
			covered = max(covered, a.Events)
		}
	}
	_, err = s.tx.ExecContext(ctx, `UPDATE events SET pos = ?1 WHERE pos = (SELECT max(pos) FROM events) AND pos < ?1`, covered)
	return err
}
