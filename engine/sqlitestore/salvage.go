package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// Salvage copies what SQL can read of a damaged store into a new one; it never writes to
// the damaged store. Rows that show that they are damaged are left out, instances are folded
// from their events, and everything that is missing is named.
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
	logAlone, source := IsLogAlone(path), path
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
	if err := result.fill(ctx, damaged, part); err != nil {
		if log := result.Log; log != nil {
			err = fmt.Errorf("%w; the log holds %d of %d pages", err, log.Pages-log.MissingPages, log.Pages)
		}
		return Salvaged{}, err
	}
	result.Bytes = fileSize(part)
	return result, errors.Join(syncFile(part), publishFile(part, out, false))
}

func emptyStore(ctx context.Context, path string) error {
	s, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	return s.Close()
}

func (r *Salvaged) fill(ctx context.Context, damaged, part string) (err error) {
	if err := emptyStore(ctx, part); err != nil {
		return err
	}
	// writable_schema has SQLite use the tables that it can read of a damaged schema, and a file that was cut off.
	db, err := sql.Open(driverName, dataSourceName(part, "synchronous(OFF)", "writable_schema(ON)", "trusted_schema(OFF)", "cell_size_check(ON)", "temp_store(memory)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "ATTACH ? AS old", damaged); err != nil {
		return err
	}
	lost, err := copyTables(ctx, db)
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "DETACH old"); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	s := salvor{inspector: inspector{Tx: tx}, lost: lost}
	for _, step := range []func(context.Context) error{s.checkRows, s.checkInstances, s.pages, s.count} {
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
