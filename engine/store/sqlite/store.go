// Package sqlite keeps definitions, instances and events in a SQLite file. It is the default store.
//
// It guarantees:
//
//   - A write that returned nil survives a crash of the process and of the machine (write-ahead log, synchronous FULL).
//   - Several processes may open the same file (the seq check decides who wins).
//   - A failing or conflicting write never harms another.
//   - A store whose files are moved or deleted while it is open acknowledges no more writes. It still checkpoints a log
//     that has lost its name into the database.
//   - A database that is missing or empty next to a log is rejected, never recreated.
//
// A single goroutine makes the queued writes of a process. It commits everything that was queued during the previous
// commit as one transaction: no artificial delay, and one fsync for many writes. If no one else has written for a
// while, a caller writes directly. Two more goroutines checkpoint the write-ahead log, and index and count decisions.
//
// It must never interpret what it keeps (hashes and folds are the task of package record), and never be opened on a
// network file system.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// Config configures Open.
type Config struct {
	// Path is the path of the file. Open creates missing directories (0700) and the file (0600).
	Path string
	// Logger receives warnings; nil discards them.
	Logger *slog.Logger
	// BusyTimeout limits how long a write waits for a lock that another process holds; 0 means 10 s.
	BusyTimeout time.Duration

	// fileSystem names the network file system of a directory; "" if it is local.
	fileSystem func(dir string) string
	// checkpointEvery is the number of pages written between two checkpoints; 0 means the constant.
	checkpointEvery int
	// autocheckpoint, if not 0, makes the commit that reaches this log length checkpoint it. Benchmarks use it as
	// baseline.
	autocheckpoint int
	// indexTimeLimit limits how long a search indexes; 0 means the constant.
	indexTimeLimit time.Duration
	// indexPause is how long a partial batch waits to be indexed; 0 means the constant. If negative, it waits
	// forever: only searches index.
	indexPause time.Duration
}

// Store is a store.Store in a SQLite file.
type Store struct {
	path    string
	log     *slog.Logger
	writer  *writer // nil if the store is read-only
	heads   *heads  // nil if the store is read-only
	readers *sql.DB
	bulk    *sql.DB // for reads with store.IsBulkRead
	stmts   readStatements
	health  health
	release func() error // closes readers; nil means readers.Close
	// indexTimeLimit limits how long a search indexes.
	indexTimeLimit time.Duration
	indexer        *indexer     // nil if nothing is indexed in the background
	indexNotBefore atomic.Int64 // indexing is paused until then, in nanoseconds since 1970

	mu          sync.RWMutex // held by enter, and by Close while it sets closed
	closed      bool
	activeCalls sync.WaitGroup // calls in progress

	closing  sync.Once
	closeErr error
}

var _ store.Store = (*Store)(nil)

// Open opens the store in a file, or creates it. Errors: ErrNotAStore, ErrLostFile, store.ErrOtherSchema,
// ErrReadOnly, ErrDiskFull, ErrBusy, ErrCorrupt, ErrNetworkFS, ErrDisk.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.BusyTimeout = cmp.Or(cfg.BusyTimeout, 10*time.Second)
	if cfg.fileSystem == nil {
		cfg.fileSystem = networkFS
	}
	cfg.checkpointEvery = cmp.Or(cfg.checkpointEvery, checkpointEvery)
	cfg.indexTimeLimit = cmp.Or(cfg.indexTimeLimit, indexTimeLimit)
	cfg.indexPause = cmp.Or(cfg.indexPause, indexPause)
	s, err := openStore(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", cfg.Path, classifyError(err))
	}
	return s, nil
}

func openStore(ctx context.Context, cfg Config) (*Store, error) {
	path, err := prepareFile(cfg)
	if err != nil {
		return nil, err
	}
	cfg.Path = path
	w, err := openWriter(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, log: cfg.Logger, writer: w, heads: w.heads, indexTimeLimit: cfg.indexTimeLimit}
	if s.readers, err = sql.Open(driverName, readerDSN(cfg)); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if s.bulk, err = sql.Open(driverName, readerDSN(cfg)); err != nil {
		return nil, errors.Join(err, s.readers.Close(), w.close())
	}
	limitConns(s.readers, max(4, 2*runtime.NumCPU()))
	limitConns(s.bulk, max(2, runtime.NumCPU()))
	if err := s.stmts.prepare(ctx, s.readers); err != nil {
		return nil, errors.Join(err, s.closeReaders(), w.close())
	}
	if cfg.autocheckpoint == 0 {
		w.checkpointer, err = newCheckpointer(cfg)
		if err != nil {
			return nil, errors.Join(err, s.closeReaders(), w.close())
		}
	}
	w.start()
	if cfg.indexPause > 0 {
		s.startIndexer(cfg.indexPause)
	}
	return s, nil
}

func limitConns(db *sql.DB, n int) {
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
}

func (s *Store) closeReaders() error {
	release := s.release
	if release == nil {
		release = s.readers.Close
	}
	return errors.Join(s.stmts.close(), s.bulk.Close(), release())
}

// Path returns the file's absolute path.
func (s *Store) Path() string { return s.path }

// enter registers a call in progress, so that Close waits for it.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return store.ErrClosed
	}
	s.activeCalls.Add(1)
	return nil
}

// Close waits for the calls in progress, writes what is queued, checkpoints the write-ahead log and releases all
// resources. It is idempotent, and every call returns only when closing is complete.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		if s.writer != nil {
			s.writer.once.Do(func() { close(s.writer.urgent) })
		}
		s.indexer.stop()
		s.activeCalls.Wait()
		err := s.closeReaders()
		if s.writer != nil {
			err = errors.Join(err, s.writer.stop())
		}
		if err != nil {
			s.closeErr = fmt.Errorf("close the store %s: %w", s.path, classifyError(err))
		}
	})
	return s.closeErr
}
