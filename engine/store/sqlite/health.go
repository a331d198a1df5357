package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// failureClasses maps errors to the classes by which failed calls are counted. All other errors are classOther.
var failureClasses = []struct {
	class string
	err   error
}{
	{"disk_full", ErrDiskFull},
	{"read_only", ErrReadOnly},
	{"locked", ErrBusy},
	{"gone", ErrGone},
	{"damaged", ErrCorrupt},
	{"too_many_files", ErrTooManyFiles},
	{"read_error", ErrDiskRead},
	{"write_error", ErrDisk},
}

const classOther = "other"

func failureClass(err error) string {
	for _, c := range failureClasses {
		if errors.Is(err, c.err) {
			return c.class
		}
	}
	return classOther
}

// probeAfter is how long the result of the last write is trusted; after that, CheckWritable makes its own write.
const probeAfter = time.Second

type health struct {
	mu       sync.Mutex
	failures map[string]uint64 // by class
	last     error             // of the last write
	at       time.Time         // when it ended; zero before the first
}

func (h *health) countFailure(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures == nil {
		h.failures = map[string]uint64{}
	}
	h.failures[failureClass(err)]++
}

func (h *health) recordWrite(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.at = err, time.Now()
}

// lastWrite returns the result of the last write, and whether it is recent.
func (h *health) lastWrite() (last error, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, !h.at.IsZero() && time.Since(h.at) < probeAfter
}

// counts returns the number of failures by class, including classes without failures.
func (h *health) counts() map[string]uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]uint64{classOther: 0}
	for _, c := range failureClasses {
		out[c.class] = 0
	}
	maps.Copy(out, h.failures)
	return out
}

// CheckWritable returns the reason why the store cannot be written, or nil. It uses the result of the last write. If
// that is too old, it makes a write that changes nothing but reaches the disk.
func (s *Store) CheckWritable(ctx context.Context) error {
	if s.writer == nil {
		return ErrReadOnly
	}
	if err := s.writer.files.checkPresent(); err != nil {
		return s.explainError(err)
	}
	if err, ok := s.health.lastWrite(); ok {
		return err
	}
	err := s.write(ctx, 0, "probe the store", func(st *statements) error { return st.exec(st.probe) })
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("a write has not ended yet (%s)%s: %w", s.path, lockHolder(s.path), err)
	}
	return err
}

// recordOutcome records the result of a write. It ignores refusals, and calls that the caller gave up, because they
// say nothing about the state of the store.
func (s *Store) recordOutcome(err error) {
	switch {
	case err == nil:
		s.health.recordWrite(nil)
	case isRefusal(err): // nothing was written
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrClosed):
	case failureClass(err) == classOther: // a single write that the schema rejects
		s.health.countFailure(err)
	default:
		s.health.countFailure(err)
		s.health.recordWrite(err)
	}
}

// Stats returns the counters of this process.
func (s *Store) Stats() store.Stats {
	stats := store.Stats{Bytes: fileSize(s.path), LogBytes: fileSize(s.path + "-wal"), Failures: s.health.counts()}
	if w := s.writer; w != nil {
		stats.Batches, stats.Writes, stats.Queued = w.batches.Load(), w.writes.Load(), len(w.queue)
		stats.LogBlocked = w.restart.blocked.Load()
	}
	if s.indexer != nil {
		stats.Unindexed = s.indexer.behind.Load()
	}
	return stats
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// count records a committed transaction with this number of writes.
func (w *writer) count(writes int) {
	if writes > 0 {
		w.batches.Add(1)
		w.writes.Add(uint64(writes)) //nolint:gosec // positive
	}
}
