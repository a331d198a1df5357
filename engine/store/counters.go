package store

import (
	"context"
	"time"
)

// Addition adds to a named counter. The first addition creates the counter.
type Addition struct {
	Name string
	// Add may be negative; a counter never falls below 0.
	Add int64
	// Max limits the counter's value; 0 means no limit. An addition that would exceed it is not applied.
	Max int64
	// Lifetime is the lifetime of a counter that this addition creates. An existing counter keeps its expiry.
	Lifetime time.Duration
}

// Count is the value of a counter after an addition.
type Count struct {
	N int64
	// Left is the time until the counter expires and starts again at 0.
	Left time.Duration
	// Full reports that the addition was not applied, because it would have exceeded Most. N and Left are then
	// unknown.
	Full bool
}

// Counters is the part of a store with counters that all its processes share. It lets callers make something
// single-use across processes: of two that add 1 to a counter of at most 1, one finds it Full.
type Counters interface {
	// Count applies the additions and returns the resulting value of each counter. After an error, possibly none of
	// them was applied. Counters expire by the store's clock.
	Count(ctx context.Context, all ...Addition) ([]Count, error)
}

// Entry is a named value that processes replace as a whole.
type Entry struct {
	Name string
	// Version starts at 1 and grows by 1 with each replacement.
	Version int64
	Body    []byte
}

// Entries is the part of a database for data that processes share but that is not a record. Other stores keep such
// data in separate files.
type Entries interface {
	// Entry returns the entry with a name. It omits the body if its version equals seen. Errors: ErrNotFound.
	Entry(ctx context.Context, name string, seen int64) (Entry, error)
	// PutEntry writes an entry. The stored version must be e.Version-1; a missing entry counts as version 0.
	// Otherwise it returns ErrConflict.
	PutEntry(ctx context.Context, e Entry) error
}
