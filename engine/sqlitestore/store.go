// Package sqlitestore keeps definitions, instances and events in one SQLite
// file. It is the default store.
//
// It promises that a write that returned nil survives a crash of the process and
// of the machine (write-ahead log, synchronous FULL), that several processes may
// open the same file (the seq check decides who wins), and that one failing or
// conflicting write never harms another. Writes of one process go through one
// goroutine, which commits whatever queued up during the previous commit as one
// transaction: no artificial delay, one fsync for many. Another goroutine folds the
// write-ahead log into the file meanwhile, and one indexes and counts decisions. A store whose files are moved or deleted
// while it is open acknowledges nothing any more, and folds a log that has lost its name;
// a database that is missing or empty next to a log is refused, never made anew.
//
// It must never interpret what it keeps (hashes and folds live in package
// record), and never be opened on a network file system.
package sqlitestore

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
	// Path of the file. Its directory is created (0700), and so is the file (0600).
	Path string
	// Logger gets warnings; nil discards them.
	Logger *slog.Logger
	// BusyTimeout bounds how long a write waits for the lock that another process
	// holds; 0 is 10 s.
	BusyTimeout time.Duration

	// fileSystem names the network file system under a directory, "" for a local one.
	fileSystem func(dir string) string
	// checkpointEvery is how many pages are written between two rounds of the
	// checkpointer; 0 is the constant.
	checkpointEvery int
	// autocheckpoint, when not 0, lets the commit that makes the log so long fold it.
	// It is the baseline of the benchmarks.
	autocheckpoint int
	// indexFor bounds how long one search indexes; 0 is the constant.
	indexFor time.Duration
	// indexPause is how long little waits to be indexed; 0 is the constant, less is for ever:
	// only searches index.
	indexPause time.Duration
}

// Store is a store.Store in a SQLite file.
type Store struct {
	path    string
	log     *slog.Logger
	writer  *writer // nil where nothing can be written
	heads   *heads  // nil where nothing can be written
	readers *sql.DB
	bulk    *sql.DB // for what store.IsBulkRead says
	stmts   readStatements
	health  health
	release func() error // closes readers; nil for their own Close
	// indexFor bounds how long one search indexes.
	indexFor   time.Duration
	indexer    *indexer     // nil where nothing is indexed in the background
	indexAfter atomic.Int64 // when something may be indexed again, in nanoseconds since 1970

	mu     sync.RWMutex // held while entering, and by Close while it shuts the door
	closed bool
	inside sync.WaitGroup // calls in progress

	closing  sync.Once
	closeErr error
}

var _ store.Store = (*Store)(nil)

// Open opens the store in a file, or creates it. Errors: ErrNotAStore, ErrLostFile,
// store.ErrOtherSchema, ErrReadOnly, ErrDiskFull, ErrBusy, ErrCorrupt,
// ErrNetworkFS, ErrDisk.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.BusyTimeout = cmp.Or(cfg.BusyTimeout, 10*time.Second)
	if cfg.fileSystem == nil {
		cfg.fileSystem = networkFS
	}
	cfg.checkpointEvery = cmp.Or(cfg.checkpointEvery, checkpointEvery)
	cfg.indexFor = cmp.Or(cfg.indexFor, indexFor)
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
	s := &Store{path: path, log: cfg.Logger, writer: w, heads: w.heads, indexFor: cfg.indexFor}
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

// enter notes a call in progress, so that Close waits for it.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return store.ErrClosed
	}
	s.inside.Add(1)
	return nil
}

// Close waits for the calls in progress, writes what is queued, folds the
// write-ahead log into the file and releases everything. It is idempotent, and
// every call returns when it is done.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		if s.writer != nil {
			s.writer.once.Do(func() { close(s.writer.hurrying) })
		}
		s.indexer.stop()
		s.inside.Wait()
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
