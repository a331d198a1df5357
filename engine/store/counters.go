package store

import (
	"context"
	"time"
)

// Addition adds to the counter of a name, which begins with its first addition.
type Addition struct {
	Name string
	// Add may be negative; no counter falls below 0.
	Add int64
	// Most is what the counter may come to; 0 bounds nothing. An addition beyond it adds nothing.
	Most int64
	// Lasts is how long a counter lasts that begins now. One that is there keeps its end.
	Lasts time.Duration
}

// Count is what a counter came to.
type Count struct {
	N int64
	// Left is how long the counter lasts on; then it begins anew, at 0.
	Left time.Duration
	// Full: nothing was added, and nothing else is known.
	Full bool
}

// Counters is the part of a store in which its processes count together. It is what makes
// something good once, whichever process is asked: of two that add 1 to a counter of at most 1,
// one finds it Full.
type Counters interface {
	// Count makes the additions, all of them or, after an error, perhaps none, and returns what each
	// counter came to. Counters end by the store's clock.
	Count(ctx context.Context, all ...Addition) ([]Count, error)
}

// Entry is a named value that processes replace whole.
type Entry struct {
	Name string
	// Version is from 1, and grows by 1 each time that the value is replaced.
	Version int64
	Body    []byte
}

// Entries is the part of a database that keeps what processes have in common and is no record. Other
// stores have files beside them for it.
type Entries interface {
	// Entry returns the entry of a name, without its body where it still has the version that was
	// seen. ErrNotFound.
	Entry(ctx context.Context, name string, seen int64) (Entry, error)
	// PutEntry writes an entry, which must be at the version before e.Version; at 0 it is not there.
	// Else ErrConflict.
	PutEntry(ctx context.Context, e Entry) error
}
