package store

// Stats holds the counters of an open store, if its driver keeps them.
type Stats struct {
	// Batches counts committed transactions, Writes the writes in them.
	Batches, Writes uint64
	Queued          int // writes that are waiting now
	// Bytes is the size of the file, LogBytes that of its write-ahead log. Both are 0 if unknown, and for a store in
	// a database.
	Bytes, LogBytes int64
	// LogBlocked counts how often readers kept the log from restarting.
	LogBlocked uint64
	// Unindexed is the number of events that searches must scan, as far as this process knows.
	Unindexed int64
	// Failures counts failed calls by class. Classes without failures are included.
	Failures map[string]uint64
}
