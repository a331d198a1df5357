package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gavel-mcp/gavel/engine/store"
)

// Salvaged reports what Salvage saved of a damaged store, and what is lost.
type Salvaged struct {
	// Contents of the new store.
	Contents
	// Tables with rows that could not be saved.
	Tables []DamagedTable `json:"tables"` // never nil
	// Instances whose history is not whole, or that had to be rebuilt.
	Instances []DamagedInstance `json:"instances"` // never nil
	// Log is what was replayed where only the write-ahead log was left; nil elsewhere.
	Log *ReplayedLog `json:"log,omitempty"`
}

// Whole reports whether everything was saved.
func (s Salvaged) Whole() bool {
	return len(s.Tables) == 0 && len(s.Instances) == 0 && (s.Log == nil || s.Log.Whole())
}

// DamagedTable is what is missing of one table.
type DamagedTable struct {
	Name string `json:"name"`
	// Rows is how many the new store has.
	Rows int64 `json:"rows"`
	// Unreadable are ranges of keys whose rows, if any, are lost. A range can go beyond the
	// last row of the table.
	Unreadable []Range `json:"unreadable,omitempty"`
	// Refused are rows that could be read and are damaged.
	Refused []RefusedRow `json:"refused,omitempty"`
	// Missing says that there is no such table.
	Missing bool `json:"missing,omitempty"`
}

// Range is a range of numbers, both ends included.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// RefusedRow is a damaged row.
type RefusedRow struct {
	Key int64  `json:"key"`
	Why string `json:"why"`
}

// DamagedInstance is an instance whose history is not whole, or that was rebuilt.
type DamagedInstance struct {
	ID string `json:"workflowId"`
	// Missing are the events that the new store does not have. Those between verify.
	Missing []Range `json:"missing,omitempty"`
	// Was is the instance's last event, as far as it is known; Is the one at which it is
	// now, 0 when it could not be rebuilt.
	Was int64 `json:"was"`
	Is  int64 `json:"is"`
	// Rebuilt says that its row, or its context, is folded from events.
	Rebuilt bool `json:"rebuilt,omitempty"`
	// Unproven says that it rests on its row, or on a snapshot: events that would prove it
	// are missing.
	Unproven bool `json:"unproven,omitempty"`
	// Refolded are the revisions whose snapshots were lost or damaged and are folded from
	// events; Dropped are those whose snapshots no events lead to.
	Refolded []int64 `json:"refoldedSnapshots,omitempty"`
	Dropped  []int64 `json:"droppedSnapshots,omitempty"`
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
func Salvage(ctx context.Context, path, out string) (s Salvaged, err error) {
	defer func() {
		if p := recover(); p != nil { // whatever the damage, the program goes on
			s, err = Salvaged{}, fmt.Errorf("%w: %v", ErrCorrupt, p)
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
	if err := emptyStore(ctx, part); err != nil {
		return Salvaged{}, err
	}
	sv := salvor{instances: map[string]int64{}, numbers: map[int64]bool{}}
	sv.result.Tables, sv.result.Instances = []DamagedTable{}, []DamagedInstance{}
	if logAlone {
		sv.result.Log, err = replayLog(source, damaged)
	} else {
		err = copyBoth(path, damaged)
	}
	if err == nil && !logAlone {
		err = fillUp(damaged)
	}
	if err != nil {
		return Salvaged{}, err
	}
	if err := sv.run(ctx, damaged, part); err != nil {
		if log := sv.result.Log; log != nil {
			err = fmt.Errorf("%w; the log holds %d of %d pages", err, log.Pages-log.MissingPages, log.Pages)
		}
		return Salvaged{}, err
	}
	return sv.result, publishFile(part, out, false)
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
	info, err := f.Stat()
	if length := int64(binary.BigEndian.Uint32(pages[:])) * pageSize4K; err == nil && length > info.Size() && length < maxFile {
		err = f.Truncate(length)
	}
	return err
}

// maxFile bounds what a header is believed, which may be damaged.
const maxFile = 1 << 40

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
	from, to *sql.DB    // one connection each
	tx       *sql.Tx    // of to
	st       statements // of tx
	pages    int64      // of the damaged file
	// instances are the numbers that stand for instances in rows, numbers those in use.
	instances map[string]int64
	numbers   map[int64]bool
	result    Salvaged
}

func (s *salvor) run(ctx context.Context, damaged, part string) (err error) {
	// writable_schema has SQLite use the tables that it can read of a damaged schema.
	if s.from, err = sql.Open(driverName, dataSourceName(damaged, "writable_schema(ON)", "trusted_schema(OFF)", "cell_size_check(ON)", "temp_store(memory)")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.from.Close()) }()
	if s.to, err = sql.Open(driverName, dataSourceName(part, "synchronous(OFF)", "temp_store(memory)")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.to.Close()) }()
	s.from.SetMaxOpenConns(1)
	s.to.SetMaxOpenConns(1)
	if err := s.checkSource(ctx); err != nil {
		return err
	}
	if s.tx, err = s.to.BeginTx(ctx, nil); err != nil {
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
	if err := s.checkInstances(ctx); err != nil {
		return err
	}
	if err := s.skipPositions(ctx); err != nil {
		return err
	}
	for i := range s.result.Tables {
		t := &s.result.Tables[i]
		if err := s.tx.QueryRowContext(ctx, "SELECT count(*) FROM "+t.Name).Scan(&t.Rows); err != nil { //nolint:gosec // a table of this program
			return err
		}
	}
	if err := s.tx.Commit(); err != nil {
		return err
	}
	if _, err := s.to.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return err
	}
	if err := syncFile(part); err != nil {
		return err
	}
	s.result.Contents, err = s.inspect(ctx, part)
	return err
}

// inspect counts what is in the new store, and has SQLite check its pages.
func (s *salvor) inspect(ctx context.Context, part string) (Contents, error) {
	tx, err := s.to.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return Contents{}, err
	}
	in := inspector{Tx: tx}
	info, err := os.Stat(part)
	if err := errors.Join(err, in.pages(ctx), in.count(ctx), tx.Rollback()); err != nil {
		return Contents{}, err
	}
	in.found.Bytes = info.Size()
	return in.found, nil
}

// maxSchemas bounds what a header is believed, which may be damaged.
const maxSchemas = 1000

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
	switch {
	case id == applicationID && version > len(known) && version < maxSchemas:
		return fmt.Errorf("%w: schema %d, this program knows up to %d; use a newer one", store.ErrNewerSchema, version, len(known))
	case tables == 0 && id == applicationID:
		return fmt.Errorf("%w (its list of tables cannot be read)", ErrCorrupt)
	case tables == 0:
		return fmt.Errorf("%w (it has no events)", ErrNotAStore)
	}
	return nil
}
