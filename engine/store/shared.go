package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Errors of what the processes over one store share.
var (
	// ErrLeaseTaken: another process holds the lease, and its time is not over.
	ErrLeaseTaken = errors.New("lease taken")
	// ErrLeaseLost: a write named a lease that has ended or that somebody else has taken; nothing
	// was written.
	ErrLeaseLost = errors.New("lease lost")
)

// Lease lets one of many processes do what only one of them may do at a time. It ends by the
// store's clock; a process that slept through its end finds out by its number.
type Lease struct {
	// Name says what it is for, Owner which process has it: both are chosen by the engine's callers.
	Name, Owner string
	// Number grows with each owner and stays when the same one takes it again in time. A write that
	// names a lease fails with ErrLeaseLost unless the store has the same number for its name, and
	// the lease has not ended.
	Number int64
	// Ends is when it ends, by the store's clock.
	Ends time.Time
}

// Leases is the part of a store by which processes agree on who does what.
type Leases interface {
	// TakeLease takes the lease of a name for an owner, who may have it already, until d from
	// now. ErrLeaseTaken, with the lease as it is, while somebody else has it.
	TakeLease(ctx context.Context, name, owner string, d time.Duration) (Lease, error)
	// EndLease gives a lease back before its end; one that is lost already is no error.
	EndLease(ctx context.Context, l Lease) error
	// DropLeases forgets the leases that ended longer than ago before now, by the store's clock, and whose
	// name begins with prefix. Such a name begins with a higher number than it had, so that
	// one of before stays lost.
	DropLeases(ctx context.Context, prefix string, ago time.Duration) error
}

type leaseKey struct{}

// UnderLease marks what is done with a context as done under a lease. Whoever writes with it names
// the lease in the write.
func UnderLease(ctx context.Context, l Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, &l)
}

// LeaseOf returns the lease under which something is done; nil for none.
func LeaseOf(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// Cursor is the place in the log up to which a named reader has everything.
type Cursor struct {
	Name string `json:"name"`
	// Position is that of the last event that the reader has; 0 before the first.
	Position int64 `json:"position"`
	// Filter is the reader's own note of what it wants, which binds nobody else.
	Filter string    `json:"filter,omitempty"`
	MadeAt time.Time `json:"madeAt"`
	// MovedAt is when it moved last, or was made, by the store's clock.
	MovedAt time.Time `json:"movedAt"`
}

// Check fails for what no driver keeps.
func (c Cursor) Check() error {
	if c.Name == "" || c.Position < 0 {
		return fmt.Errorf("a cursor needs a name and a position from 0: %q at %d", c.Name, c.Position)
	}
	return nil
}

// Cursors is the part of a store that keeps the places of readers.
type Cursors interface {
	// MoveCursor moves the cursor of a name from a position to another, or makes it where from is
	// NoCursor. ErrConflict where it is elsewhere by now, or is there already. Where lease is not
	// nil, ErrLeaseLost when that has ended. Both times are the store's, not those of c.
	MoveCursor(ctx context.Context, c Cursor, from int64, lease *Lease) error
	// Cursors lists all cursors by name.
	Cursors(ctx context.Context) ([]Cursor, error)
	// DropCursor forgets a cursor. ErrNotFound.
	DropCursor(ctx context.Context, name string) error
}

// NoCursor is where a cursor is that is not there yet.
const NoCursor = -1

// DataKey is the key that seals the sensitive values of one instance, itself sealed by a key that
// the store does not have.
type DataKey struct {
	Instance string `json:"id"`
	// Number is from 1, and grows when the instance gets another one for what follows.
	Number int `json:"number"`
	// Wrapped is the sealed key; empty where it was destroyed.
	Wrapped []byte `json:"-"`
	// Under names the key that sealed it, by a digest.
	Under       string    `json:"under"`
	MadeAt      time.Time `json:"madeAt"`
	DestroyedAt time.Time `json:"destroyedAt,omitzero"`
}

// CheckReplaces fails where the key cannot take the place of was, nil for a new one: ErrConflict where
// that was destroyed, unless this one is the same.
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

// Equal reports whether two keys are the same in everything.
func (k DataKey) Equal(other DataKey) bool {
	return k.Instance == other.Instance && k.Number == other.Number && bytes.Equal(k.Wrapped, other.Wrapped) && k.Under == other.Under &&
		k.MadeAt.Equal(other.MadeAt) && k.DestroyedAt.Equal(other.DestroyedAt)
}

// DataKeys is the part of a store that keeps sealed keys.
type DataKeys interface {
	// PutDataKey writes a key: a new one, whose number must be the highest of its instance plus 1,
	// or one in place of was, all of which must still be so; else ErrConflict. One that was
	// destroyed never comes back (ErrConflict), and where the driver has the files, it leaves no copy
	// in them once PutDataKey returned nil. To destroy it again, as it is, sees to that once more.
	PutDataKey(ctx context.Context, k DataKey, was *DataKey) error
	// DataKey returns a key of an instance, the newest for number 0. ErrNotFound.
	DataKey(ctx context.Context, instance string, number int) (DataKey, error)
	// DataKeys lists the keys behind an instance and a number, in their order.
	DataKeys(ctx context.Context, instance string, number int) iter.Seq2[DataKey, error]
}

// Waker is the part of a driver that hears of other processes' commits. It is a hint: who listens
// also looks now and then.
type Waker interface {
	// Wakes returns a channel that gets a value soon after others committed events, and the
	// function that ends it. Many commits are one value. A channel that never gets one is legal.
	Wakes(ctx context.Context) (wake <-chan struct{}, stop func())
}
