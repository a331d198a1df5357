package sqlitestore

import "os"

// Stats is what a Store has done since it was opened, and how large it is.
type Stats struct {
	// Batches are transactions that were committed, Writes the writes in them.
	Batches, Writes uint64
	Queued          int // writes that wait now
	// Bytes is the size of the file, LogBytes that of the log beside it; 0 when it cannot
	// be seen.
	Bytes, LogBytes int64
	// LogBlocked counts how often the log could not begin anew because readers used it.
	LogBlocked uint64
	// Failures counts the calls that failed, by why: disk_full, read_only, locked, gone,
	// damaged, too_many_files, read_error, write_error, other.
	Failures map[string]uint64
}

// Stats returns the figures of this process.
func (s *Store) Stats() Stats {
	stats := Stats{Bytes: fileSize(s.path), LogBytes: fileSize(s.path + "-wal"), Failures: s.health.counts()}
	if w := s.writer; w != nil {
		stats.Batches, stats.Writes, stats.Queued = w.batches.Load(), w.writes.Load(), len(w.queue)
		stats.LogBlocked = w.long.blocked.Load()
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

// count notes a transaction that was committed with so many writes.
func (w *writer) count(writes int) {
	if writes > 0 {
		w.batches.Add(1)
		w.writes.Add(uint64(writes)) //nolint:gosec // positive
	}
}
