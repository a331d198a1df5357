package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Errors of operations on data that processes share.
var (
	// ErrLeaseTaken is returned while another process holds the lease.
	ErrLeaseTaken = errors.New("lease taken")
	// ErrLeaseLost is returned if a write names a lease that has ended or was taken by another process. Nothing was
	// written.
	ErrLeaseLost = errors.New("lease lost")
)

// Lease grants one of many processes the right to do something exclusively. It ends by the store's clock. If a
// process misses the end, for example because it was suspended, Number reveals that the lease is lost.
type Lease struct {
	// Name identifies the work, Owner the process. The engine's callers choose both.
	Name, Owner string
	// Number grows with each owner, and stays if the same owner renews the lease in time. A write that names a lease
	// fails with ErrLeaseLost if the store has another number for that name, or if the lease has ended.
	Number int64
	// Ends is the end of the lease by the store's clock.
	Ends time.Time
}

// Leases is the part of a store through which processes agree on who does exclusive work.
type Leases interface {
	// TakeLease takes or renews a named lease for an owner, until d from now. While another owner holds the lease, it
	// returns that lease and ErrLeaseTaken.
	TakeLease(ctx context.Context, name, owner string, d time.Duration) (Lease, error)
	// EndLease returns a lease before its end. It is not an error if the lease is already lost.
	EndLease(ctx context.Context, l Lease) error
	// DropLeases deletes the leases whose name begins with prefix and that ended more than ago before now, by the
	// store's clock. If such a name is used again, its number is higher than before, so that old leases stay lost.
	DropLeases(ctx context.Context, prefix string, ago time.Duration) error
}

type leaseKey struct{}

// UnderLease returns a context for work that is done under a lease. Every write with that context must name the
// lease.
func UnderLease(ctx context.Context, l Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, &l)
}

// LeaseOf returns the lease of a context, or nil.
func LeaseOf(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// Cursor is the position in the log up to which a named reader has received everything.
type Cursor struct {
	Name string `json:"name"`
	// Position is that of the last event that the reader has received; 0 before the first.
	Position int64 `json:"position"`
	// Filter is the reader's own note of what it wants. The store does not interpret it.
	Filter string    `json:"filter,omitempty"`
	MadeAt time.Time `json:"madeAt"`
	// MovedAt is the time of its last move, or of its creation, by the store's clock.
	MovedAt time.Time `json:"movedAt"`
}

// Check returns an error if no driver may store the cursor.
func (c Cursor) Check() error {
	if c.Name == "" || c.Position < 0 {
		return fmt.Errorf("a cursor needs a name and a position from 0: %q at %d", c.Name, c.Position)
	}
	return nil
}

// Cursors is the part of a store that keeps the cursors of readers.
type Cursors interface {
	// MoveCursor moves a cursor from one position to another, or creates it if from is NoCursor. It returns
	// ErrConflict if the cursor is at another position, or already exists. If lease is not nil and has ended, it
	// returns ErrLeaseLost. The store sets both times; those in c are ignored.
	MoveCursor(ctx context.Context, c Cursor, from int64, lease *Lease) error
	// Cursors lists all cursors by name.
	Cursors(ctx context.Context) ([]Cursor, error)
	// DropCursor deletes a cursor. Errors: ErrNotFound.
	DropCursor(ctx context.Context, name string) error
}

// NoCursor is the position of a cursor that does not exist yet.
const NoCursor = -1

// DataKey is the key that encrypts the sensitive values of one instance. It is stored encrypted under another key,
// which the store does not have.
type DataKey struct {
	Instance string `json:"id"`
	// Number starts at 1 and grows when the instance gets a new key for its later values.
	Number int `json:"number"`
	// Wrapped is the encrypted key; empty if the key was destroyed.
	Wrapped []byte `json:"-"`
	// Under identifies the wrapping key by a digest.
	Under       string    `json:"under"`
	MadeAt      time.Time `json:"madeAt"`
	DestroyedAt time.Time `json:"destroyedAt,omitzero"`
}

// CheckReplaces returns an error if the key cannot replace was (nil for a new key). The error is ErrConflict if was
// is destroyed, unless both are equal.
func (k DataKey) CheckReplaces(was *DataKey) error {
	switch {
	case k.Instance == "" || k.Number < 1 || k.DestroyedAt.IsZero() != (len(k.Wrapped) > 0):
		return fmt.Errorf("data key %d of %q: it needs an instance, a number from 1, and a sealed key unless it was destroyed", k.Number, k.Instance)
	case was == nil:
		return nil
	case k.Instance != was.Instance || k.Number != was.Number:
		return fmt.Errorf("data key %d of %s cannot replace %d of %s", k.Number, k.Instance, was.Number, was.Instance)
	case !was.DestroyedAt.IsZero() && !k.Equal(*was):
		return fmt.Errorf("%w: data key %d of %s was destroyed", ErrConflict, k.Number, k.Instance)
	}
	return nil
}

// Equal reports whether all fields of two keys are equal.
func (k DataKey) Equal(other DataKey) bool {
	return k.Instance == other.Instance && k.Number == other.Number && bytes.Equal(k.Wrapped, other.Wrapped) && k.Under == other.Under &&
		k.MadeAt.Equal(other.MadeAt) && k.DestroyedAt.Equal(other.DestroyedAt)
}

// DataKeys is the part of a store that keeps wrapped keys.
type DataKeys interface {
	// PutDataKey writes a key: a new one, whose number must be the highest of its instance plus 1, or one that
	// replaces was. It returns ErrConflict if the number is not the next, or if the stored key differs from was. A
	// destroyed key never comes back (ErrConflict). If the driver controls the files, they contain no copy of it once
	// PutDataKey returned nil. Destroying it again, unchanged, repeats the erasure.
	PutDataKey(ctx context.Context, k DataKey, was *DataKey) error
	// DataKey returns a key of an instance, the newest for number 0. Errors: ErrNotFound.
	DataKey(ctx context.Context, instance string, number int) (DataKey, error)
	// DataKeys lists, in order, the keys after the given instance and number.
	DataKeys(ctx context.Context, instance string, number int) iter.Seq2[DataKey, error]
}

// Waker is the part of a driver that learns of other processes' commits. Its signals are hints: listeners must also
// poll from time to time.
type Waker interface {
	// Subscribe returns a channel that receives a value soon after other processes committed events, and a function that
	// ends the subscription. One value may represent many commits. A channel that never receives a value is valid.
	Subscribe(ctx context.Context) (wake <-chan struct{}, stop func())
}
