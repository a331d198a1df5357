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
