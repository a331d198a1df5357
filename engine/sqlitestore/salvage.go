package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Salvaged says what was saved of a damaged store, and what was not.
type Salvaged struct {
	// Contents of the new store.
	Contents
	// Tables with rows that could not be saved.
	Tables []DamagedTable `json:"tables"` // never nil
	// Instances whose history is not whole, or that had to be rebuilt.
	Instances []DamagedInstance `json:"instances"` // never nil
	// LeftOver is the file with the events that follow nothing that was saved, one JSON
	// object a line; "" without any.
	LeftOver       string `json:"leftOver,omitempty"`
	LeftOverEvents int    `json:"leftOverEvents,omitempty"`
	// Schema says that what the file itself says of its tables was unreadable, and that
	// it was read as if it were a store of this program's version.
	Schema bool `json:"schemaGuessed,omitempty"`
	// Log says what was replayed where only the write-ahead log was left; nil elsewhere.
	Log *ReplayedLog `json:"log,omitempty"`
}

// Whole reports whether everything was saved.
func (s Salvaged) Whole() bool {
	return len(s.Tables) == 0 && len(s.Instances) == 0 && !s.Schema && (s.Log == nil || s.Log.Whole())
}

// DamagedTable is what is missing of one table.
type DamagedTable struct {
	Name string `json:"name"`
	// Rows is how many the new store has.
	Rows int64 `json:"rows"`
	// Unreadable are ranges of keys: what they held, if anything, is lost. The last one
	// may end where no row ever was.
	Unreadable []Range `json:"unreadable,omitempty"`
	// Refused are rows that could be read and are not what was written.
	Refused []RefusedRow `json:"refused,omitempty"`
	// Missing says that there is no such table.
	Missing bool `json:"missing,omitempty"`
}

// Range is a range of numbers, both ends included.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// RefusedRow is a row that is no good.
type RefusedRow struct {
	Key int64  `json:"key"`
	Why string `json:"why"`
}

// DamagedInstance is an instance whose history is not whole, or that was rebuilt.
type DamagedInstance struct {
	ID string `json:"workflowId"`
	// Missing are the events that are lost. What lies between verifies.
	Missing []Range `json:"missing,omitempty"`
	// Was is the event at which the instance was, as far as that is known, Is the one at
	// which it is now; 0 when it could not be rebuilt.
	Was int64 `json:"was"`
	Is  int64 `json:"is"`
	// Rebuilt says that its row, or its context, is folded from events.
	Rebuilt bool `json:"rebuilt,omitempty"`
	// Unproven says that what it is rests on its row or on a snapshot as they were found:
	// events are missing that would prove it.
	Unproven bool `json:"unproven,omitempty"`
	// Refolded are the revisions of which the snapshot was lost, or not what the events lead
	// to, and was folded from them anew; Dropped are those of which it could not be.
	Refolded []int64 `json:"refoldedSnapshots,omitempty"`
	Dropped  []int64 `json:"droppedSnapshots,omitempty"`
	// LeftOver counts its events that follow nothing that was saved.
	LeftOver int `json:"leftOver,omitempty"`
}

// salvagedTables are the tables that are read, in this order: events need to know the
// instances. What is not in the list is derived from what is.
var salvagedTables = []string{
	"definitions", "judge_configs", "instances", "contexts", "events", "snapshots", "refusals", "reviews", "anchors",
}

// Salvage reads what can be read of a damaged store into a new one, and writes nothing
// into the damaged one. Rows are read by ranges of their keys, halving around what
// cannot be read; events and definitions also where nothing leads to their pages. An event is saved when its hash covers it, a definition when it is
// what its hash says; instances are folded from their events, and what no event proves
// is said to be unproven. The new store opens like any other; verifying it finds the
// gaps that the result names, and nothing else.
//
// Errors: fs.ErrNotExist, ErrExists, ErrDiskFull, store.ErrNewerSchema, and ErrCorrupt when nothing at all can
// be read.
func Salvage(ctx context.Context, path, out string) (s Salvaged, err error) {
	defer func() {
		if p := recover(); p != nil { // no page, however it is damaged, ends the program
			s, err = Salvaged{}, fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
		if err != nil {
			err = fmt.Errorf("salvage the store %s: %w", path, classify(err))
		}
	}()
	return salvage(ctx, path, out)
}

func salvage(ctx context.Context, path, out string) (s Salvaged, err error) {
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
	part := filepath.Join(dir, "new.db")
	if err := emptyStore(ctx, part); err != nil {
		return Salvaged{}, err
	}
	damaged := filepath.Join(dir, "damaged.db")
	var replayed *ReplayedLog
	if logAlone {
		replayed, err = replayLog(source, damaged)
	} else {
		err = copyDamaged(path, damaged)
	}
	if err != nil {
		return Salvaged{}, err
	}
	left := out + ".left-over.jsonl"
	sv := salvor{leftOver: leftOver{path: filepath.Join(dir, "left-over.jsonl")}, ids: numbers{of: map[string]int64{}, taken: map[int64]bool{}}}
	sv.result.Log = replayed
	sv.result.Tables, sv.result.Instances = []DamagedTable{}, []DamagedInstance{}
	if err := sv.run(ctx, damaged, part); err != nil {
		return Salvaged{}, err
	}
	if sv.leftOver.count > 0 {
		if err := publishFile(sv.leftOver.path, left, false); err != nil {
			return Salvaged{}, err
		}
		sv.result.LeftOver, sv.result.LeftOverEvents = left, sv.leftOver.count
	}
	return sv.result, publishFile(part, out, false)
}

// copyDamaged copies a store with its log.
func copyDamaged(path, to string) error {
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(path+suffix, to+suffix); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return fillUp(to)
}

// fillUp makes a file that was cut off as long as it says that it is: SQLite reads no
// other. The pages that are not there are empty then, and found to be damaged.
func fillUp(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var header [headerLength]byte
	if _, err := f.ReadAt(header[:], 0); err != nil {
		return fmt.Errorf("%w (%d bytes)", ErrCorrupt, info.Size())
	}
	says := int64(binary.BigEndian.Uint32(header[headerPages:])) * pageSize4K
	if says <= info.Size() || says > longestFile { // what says that was damaged itself
		return nil
	}
	return f.Truncate(says)
}

// emptyStore makes a store with today's schema in one file.
func emptyStore(ctx context.Context, path string) error {
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	return s.Close()
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// salvor is one run of Salvage.
type salvor struct {
	path     string  // of the damaged store, a copy
	from, to *sql.DB // one connection each
	tx       *sql.Tx // of to
	pages    int64   // of the damaged file
	highest  int64   // no key that can be read is above it
	ids      numbers
	result   Salvaged
	leftOver leftOver
}

func (s *salvor) run(ctx context.Context, damaged, part string) (err error) {
	s.path = damaged
	if err := s.open(ctx, damaged, part); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.from.Close(), s.to.Close()) }()
	if s.tx, err = s.to.BeginTx(ctx, nil); err != nil {
		return err
	}
	defer func() { _ = s.tx.Rollback() }() // says that it is over, after the commit
	for _, table := range salvagedTables {
		if err := s.table(ctx, table); err != nil {
			return err
		}
	}
	if err := s.mend(ctx); err != nil {
		return err
	}
	for i := range s.result.Tables { // what was taken out again is not saved
		t := &s.result.Tables[i]
		if err := s.tx.QueryRowContext(ctx, "SELECT count(*) FROM "+t.Name).Scan(&t.Rows); err != nil { //nolint:gosec // a table of this program
			return err
		}
	}
	if err := s.leftOver.close(); err != nil {
		return err
	}
	if err := s.tx.Commit(); err != nil {
		return err
	}
	if _, err := s.to.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return err
	}
	if err := s.tally(ctx, part); err != nil {
		return err
	}
	return syncFile(part)
}

// tally counts what is in the new store, and lets SQLite look at its pages.
func (s *salvor) tally(ctx context.Context, part string) error {
	tx, err := s.to.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	in := inspector{Tx: tx}
	if err := errors.Join(in.pages(ctx), in.count(ctx), tx.Rollback()); err != nil {
		return err
	}
	info, err := os.Stat(part)
	if err != nil {
		return err
	}
	s.result.Contents = in.found
	s.result.Bytes = info.Size()
	return nil
}

// open opens both stores. The damaged one is a copy: SQLite may play its log into it.
func (s *salvor) open(ctx context.Context, damaged, part string) (err error) {
	from := dataSourceName(damaged, "trusted_schema(OFF)", "cell_size_check(ON)", "temp_store(memory)", "cache_size(-8000)")
	if s.from, err = sql.Open(driverName, from); err != nil {
		return err
	}
	s.from.SetMaxOpenConns(1)
	readErr := s.readable(ctx)
	if errors.Is(readErr, store.ErrNewerSchema) {
		return errors.Join(readErr, s.from.Close())
	}
	if readErr != nil {
		if err := errors.Join(s.from.Close(), lendSchema(ctx, part, damaged)); err != nil {
			return err
		}
		if s.from, err = sql.Open(driverName, from); err != nil {
			return err
		}
		s.from.SetMaxOpenConns(1)
		if err := s.readable(ctx); err != nil {
			return errors.Join(readErr, err, s.from.Close())
		}
		s.result.Schema = true
	}
	// What the log holds is in the file then, as far as that goes.
	_, _ = s.from.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	if s.highest, err = highestKey(damaged, s.pages*mostRowsPerPage); err != nil {
		return errors.Join(err, s.from.Close())
	}
	if s.to, err = sql.Open(driverName, dataSourceName(part, "synchronous(OFF)", "temp_store(memory)")); err != nil {
		return errors.Join(err, s.from.Close())
	}
	s.to.SetMaxOpenConns(1)
	return nil
}

// readable reports whether the file says what its tables are.
func (s *salvor) readable(ctx context.Context) error {
	var events int
	err := s.from.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('instances', 'events')").Scan(&events)
	switch {
	case err != nil:
		return err
	case events < 2:
		return fmt.Errorf("%w (it has no events)", ErrNotAStore)
	}
	if err := s.notNewer(ctx); err != nil {
		return err
	}
	return s.from.QueryRowContext(ctx, "PRAGMA page_count").Scan(&s.pages)
}

// mostSchemas bounds what a header is believed: a damaged one may say anything.
const mostSchemas = 1000

// notNewer refuses a store that a newer program wrote: it may hold what this one would
// leave behind without a word.
func (s *salvor) notNewer(ctx context.Context) error {
	known, err := migrations.ReadDir("migrations")
	if err != nil {
		return err
	}
	var id, version int
	if err := s.from.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return err
	}
	if err := s.from.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if id == applicationID && version > len(known) && version < mostSchemas {
		return fmt.Errorf("%w: schema %d, this program knows up to %d; use a newer one", store.ErrNewerSchema, version, len(known))
	}
	return nil
}

// The header of a file, in its first page.
const (
	pageSize4K     = 4096
	headerLength   = 100
	headerJournal  = 18 // two bytes: 1 without a write-ahead log
	headerCounter  = 24 // what headerPages is valid for
	headerPages    = 28 // how many pages the file has
	headerFree     = 32 // the list of free pages, and how long it is
	headerValidFor = 92
	longestFile    = 1 << 40
)

// lendSchema makes a file say that it has the tables of an empty store, where they are in
// that one: stores that were made by the same migrations have them in the same places.
func lendSchema(ctx context.Context, from, to string) (err error) {
	if err := lendFirstPage(from, to); err != nil {
		return err
	}
	fresh, err := openToRead(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fresh.Close()) }()
	db, err := sql.Open(driverName, dataSourceName(to, "writable_schema(ON)", "synchronous(OFF)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, table := range salvagedTables {
		var root int64
		var create string
		if err := fresh.QueryRowContext(ctx, `SELECT rootpage, sql FROM sqlite_schema WHERE type = 'table' AND name = ?`, table).Scan(&root, &create); err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, `INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('table', ?1, ?1, ?2, ?3)`, table, root, create); err != nil {
			return err
		}
	}
	return nil
}

// lendFirstPage gives a file the header of another one, and no tables at all.
func lendFirstPage(from, to string) (err error) {
	info, err := os.Stat(to)
	if err != nil {
		return err
	}
	if info.Size() < 2*pageSize4K {
		return fmt.Errorf("%w (%d bytes)", ErrCorrupt, info.Size())
	}
	whole, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	page := make([]byte, pageSize4K)
	copy(page, whole[:headerLength])
	page[headerJournal], page[headerJournal+1] = 1, 1
	binary.BigEndian.PutUint32(page[headerPages:], uint32(info.Size()/pageSize4K)) //nolint:gosec // SQLite has no more pages than that
	clear(page[headerFree : headerFree+8])
	copy(page[headerValidFor:headerValidFor+4], page[headerCounter:headerCounter+4])
	page[headerLength] = tableLeaf
	binary.BigEndian.PutUint16(page[headerLength+5:], pageSize4K) // where cells begin: there are none
	f, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(page, 0)
	return errors.Join(err, f.Close(), removeIf(to+"-wal"), removeIf(to+"-shm"))
}

func removeIf(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// leftOver is the file of the events that follow nothing.
type leftOver struct {
	path  string
	f     *os.File
	count int
}

func (l *leftOver) add(e record.Event) error {
	if l.f == nil {
		var err error
		if l.f, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
	}
	l.count++
	_, err := fmt.Fprintf(l.f, "{\"workflowId\":%q,\"seq\":%d,\"prevHash\":%q,\"hash\":%q,\"event\":%s}\n", e.Instance, e.Seq, e.PrevHash, e.Hash, e.Body())
	return err
}

func (l *leftOver) close() error {
	if l.f == nil {
		return nil
	}
	return errors.Join(l.f.Sync(), l.f.Close())
}
