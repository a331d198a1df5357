package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
)

// Reader reads a store and can write nothing: the file is opened so that SQLite itself
// refuses. It is safe for concurrent use, also while other processes write.
type Reader struct{ s *Store }

var _ engine.Archive = (*Reader)(nil)

// OpenReader opens an existing store to read it. A store of an older schema is not
// migrated but refused. Errors: fs.ErrNotExist, ErrNotAStore, engine.ErrNewerSchema,
// ErrOlderSchema, ErrCorrupt, ErrDisk.
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	s, err := openReader(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("read the store %s: %w", path, classify(err))
	}
	return &Reader{s}, nil
}

// ErrOlderSchema says that the store has to be migrated before it can be read.
var ErrOlderSchema = errors.New("the store has an older schema")

func openReader(ctx context.Context, path string) (_ *Store, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w (not a regular file)", ErrNotAStore)
	case info.Size() < minSize:
		return nil, fmt.Errorf("%w (%d bytes)", ErrNotAStore, info.Size())
	}
	db, err := sql.Open(driverName, dsn(path, "busy_timeout(10000)", "query_only(ON)", "cache_size(-8000)", "temp_store(memory)", "trusted_schema(OFF)")+"&mode=ro")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(max(2, runtime.NumCPU()))
	s := &Store{path: path, log: slog.New(slog.DiscardHandler), readers: db}
	if err = errors.Join(identifyToday(ctx, db), ctx.Err()); err == nil {
		err = s.stmts.prepare(ctx, db)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// identifyToday refuses what is no store of today's schema.
func identifyToday(ctx context.Context, db *sql.DB) (err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	in := inspector{Tx: tx}
	if err := in.identity(ctx); err != nil {
		return err
	}
	known, err := migrations.ReadDir("migrations")
	if err != nil {
		return err
	}
	var version int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version < len(known) {
		return fmt.Errorf("%w: %d, this program reads %d; any command that writes brings it up to date", ErrOlderSchema, version, len(known))
	}
	return nil
}

// Definition implements engine.Archive.
func (r *Reader) Definition(ctx context.Context, name string, version int) (engine.StoredDefinition, error) {
	return r.s.Definition(ctx, name, version)
}

// JudgeConfigs implements engine.Archive.
func (r *Reader) JudgeConfigs(ctx context.Context, workflow string) ([]engine.JudgeConfig, error) {
	return r.s.JudgeConfigs(ctx, workflow)
}

// Instances implements engine.Archive.
func (r *Reader) Instances(ctx context.Context, q engine.InstanceQuery) iter.Seq2[record.Instance, error] {
	return r.s.Instances(ctx, q)
}

// Events implements engine.Archive.
func (r *Reader) Events(ctx context.Context, q engine.EventQuery) iter.Seq2[record.Event, error] {
	return r.s.Events(ctx, q)
}

// Snapshot implements engine.Archive.
func (r *Reader) Snapshot(ctx context.Context, id string, revision int64) (record.Instance, error) {
	return r.s.Snapshot(ctx, id, revision)
}

// Review implements engine.Archive.
func (r *Reader) Review(ctx context.Context, id string) (engine.StoredReview, error) {
	return r.s.Review(ctx, id)
}

// Close waits for the calls in progress and releases the file. It is idempotent.
func (r *Reader) Close() error {
	r.s.closing.Do(func() {
		r.s.mu.Lock()
		r.s.closed = true
		r.s.mu.Unlock()
		r.s.inside.Wait()
		if err := errors.Join(r.s.stmts.close(), r.s.readers.Close()); err != nil {
			r.s.closeErr = fmt.Errorf("close the store %s: %w", r.s.path, classify(err))
		}
	})
	return r.s.closeErr
}
