package sqlite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
)

// OpenToRead opens an existing store for reading; every write fails with ErrReadOnly. The only file it creates next
// to the store is SQLite's -shm, which it leaves there. If it cannot create that file, it reads a temporary copy,
// which Close removes.
//
// Errors: fs.ErrNotExist, ErrLostFile, ErrUnreadLog, ErrNotAStore, store.ErrOtherSchema, ErrCorrupt, ErrDisk.
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

func openReader(ctx context.Context, path string) (_ *Store, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	src, err := openSource(ctx, path, isStore)
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
