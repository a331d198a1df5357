package store

// Stats are the figures of an open store, for a driver that counts them.
type Stats struct {
	// Batches are transactions that were committed, Writes the writes in them.
	Batches, Writes uint64
	Queued          int // writes that wait now
	// Bytes is the size of the file, LogBytes that of the log beside it; 0 when it cannot
	// be seen, and for a database.
	Bytes, LogBytes int64
	// LogBlocked counts how often the log could not begin anew because readers used it.
	LogBlocked uint64
	// Unindexed are the events that searches look through, as far as this process knows.
	Unindexed int64
	// Failures counts the calls that failed, by class, with those that never happened.
	Failures map[string]uint64
}
