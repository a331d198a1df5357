package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
)

// OpenToRead opens an existing store of which nothing is changed: every write is refused
// with ErrReadOnly. It makes no file next to the store but the -shm of SQLite, which it
// leaves. Where that cannot be made, and where the schema is older than today's, it reads a
// temporary copy; Close removes it. Errors: fs.ErrNotExist, ErrLostFile, ErrUnreadLog,
// ErrNotAStore, store.ErrNewerSchema, ErrCorrupt, ErrDisk.
func OpenToRead(ctx context.Context, path string) (*Store, error) {
	s, err := openReader(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("read the store %s: %w", path, classifyError(err))
	}
	return s, nil
}

// IsEmpty reports whether nothing was ever written to the store.
func (s *Store) IsEmpty(ctx context.Context) (empty bool, err error) {
	const query = `SELECT NOT EXISTS (SELECT 1 FROM events) AND NOT EXISTS (SELECT 1 FROM definitions)
		AND NOT EXISTS (SELECT 1 FROM judge_configs) AND NOT EXISTS (SELECT 1 FROM anchors)`
	err = s.read(ctx, "whether the store is empty", func(ctx context.Context) error {
		return s.readers.QueryRowContext(ctx, query).Scan(&empty)
	})
	return empty, err
}

// ErrOlderSchema says that the store has to be migrated before it can be read.
var ErrOlderSchema = errors.New("the store has an older schema")

func openReader(ctx context.Context, path string) (_ *Store, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	src, err := openSource(ctx, path, identifyToday)
	if errors.Is(err, ErrOlderSchema) {
		src, err = openMigrated(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	src.db.SetMaxOpenConns(max(2, runtime.NumCPU()))
	s := &Store{path: path, log: slog.New(slog.DiscardHandler), readers: src.db, bulk: src.db, release: src.close}
	if err := s.stmts.prepare(ctx, src.db); err != nil {
		return nil, errors.Join(err, src.close())
	}
	return s, nil
}

// openMigrated opens a copy of a store of an older schema, brought up to date.
func openMigrated(ctx context.Context, path string) (*source, error) {
	copied, remove, err := migratedCopy(ctx, path)
	if err != nil {
		return nil, err
	}
	src, err := openSource(ctx, copied, identifyToday)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	closeCopy := src.close
	src.close = func() error { return errors.Join(closeCopy(), remove()) }
	return src, nil
}

// identifyToday refuses what is no store of today's schema.
func identifyToday(ctx context.Context, db *sql.DB) error {
	version, err := checkIdentity(ctx, db, "main")
	if err == nil && version < len(migrations) {
		err = fmt.Errorf("%w: %d, this program reads %d; any command that writes brings it up to date", ErrOlderSchema, version, len(migrations))
	}
	return err
}
