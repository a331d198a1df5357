// Package rows defines the row format of drivers that have tables. It encodes a commit into rows and decodes rows
// back into what was committed.
//
//   - Two drivers write the same bytes for the same commit, so that a store can be copied between them.
//   - The package is pure and must never access a database.
package rows

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Commit is a commit encoded for writing.
type Commit struct {
	store.Commit
	Head, From []byte // the new head, and the expected one
	Facts      []byte
	// Context is nil if the events do not change it.
	Context []byte
	// Snapshot is nil if none is requested. FloorSnapshot is the snapshot of Floor; nil if no events are removed.
	Snapshot, FloorSnapshot []byte
	Keys                    [][]byte // the key scopes of the events
	Rows                    []Event  // encoded Events
	ReviewRows              []Review // encoded Reviews
	Size                    int      // approximate, in bytes
}

// Event is the row of an event.
type Event struct {
	Seq, Revision int64
	Kind          string
	At            int64  // nanoseconds since 1970
	Scope         []byte // of its key; nil if it has none
	Prev, Hash    []byte
	Body          []byte
}

// Review is the row of a review. Body is its JSON without the data. Data is stored separately so that it is returned
// byte for byte; nil if there is none.
type Review struct {
	ID                            string
	SortKey                       int // sort key of lists
	Status                        string
	Instance, Workflow, Principal string
	Body, Data                    []byte
}

// NewCommit encodes a commit that has passed Check.
func NewCommit(c store.Commit) (*Commit, error) {
	p := &Commit{Commit: c}
	for i, e := range c.Events {
		if err := p.addEvent(e, i == 0); err != nil {
			return nil, fmt.Errorf("event %d: %w", e.Seq, err)
		}
	}
	var err error
	if p.Facts, err = json.Marshal(c.Next.Facts); err != nil {
		return nil, fmt.Errorf("encode the facts: %w", err)
	}
	if c.Snapshot {
		if p.Snapshot, err = EncodeSnapshot(c.Next); err != nil {
			return nil, err
		}
		p.Size += len(c.Next.Context)
	}
	if c.Floor != nil {
		if p.FloorSnapshot, err = EncodeSnapshot(*c.Floor); err != nil {
			return nil, err
		}
		p.Size += len(c.Floor.Context)
	}
	p.Size += len(p.Context)
	for _, r := range c.Reviews {
		row, err := newReview(r)
		if err != nil {
			return nil, err
		}
		p.ReviewRows = append(p.ReviewRows, row)
		p.Size += len(row.Body) + len(row.Data)
	}
	return p, nil
}

func (c *Commit) addEvent(e record.Event, first bool) (err error) {
	row := Event{Seq: e.Seq, Revision: e.Revision, Kind: string(e.Kind), At: e.Time.UnixNano(), Body: e.Body()}
	if row.Prev, err = hex.DecodeString(e.PrevHash); err != nil {
		return fmt.Errorf("previous hash: %w", err)
	}
	if row.Hash, err = hex.DecodeString(e.Hash); err != nil {
		return fmt.Errorf("hash: %w", err)
	}
	if c.Head = row.Hash; first {
		c.From = row.Prev
	}
	if e.Key != nil {
		if row.Scope, err = hex.DecodeString(e.Key.Scope); err != nil {
			return fmt.Errorf("key scope: %w", err)
		}
		c.Keys = append(c.Keys, row.Scope)
	}
	if mayChangeContext(e.Kind) {
		c.Context = OrEmpty(c.Next.Context)
	}
	c.Rows = append(c.Rows, row)
	c.Size += len(row.Body)
	return nil
}

// mayChangeContext reports whether an event may change the context. Only kinds known not to change it return false.
func mayChangeContext(k record.Kind) bool {
	switch k {
	case record.Refused, record.Prechecked, record.Checkpointed, record.KindCancelled, record.Escalated, record.Reviewed,
		record.Called, record.Settled, record.Heard, record.Released, record.Truncated:
		return false
	case record.Started, record.Advanced, record.RolledBack, record.Undone, record.Redone,
		record.Migrated, record.Imported, record.Reconciled:
	}
	return true
}

// OrEmpty returns b, or an empty slice for nil, so that drivers do not store NULL.
func OrEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// ChangesCalls reports whether the commit begins or ends calls or releases a subject.
func (c *Commit) ChangesCalls() bool {
	return slices.ContainsFunc(c.Events, func(e record.Event) bool {
		return e.Kind == record.Called || e.Kind == record.Settled || e.Kind == record.Released
	})
}

// Changes reports whether the commit may change the state and the status. Without it, drivers would rewrite list
// indexes over these columns even if nothing changes.
func (c *Commit) Changes() (state, status bool) {
	for _, e := range c.Events {
		if e.Kind.Revises() {
			advances := e.Kind == record.Advanced && e.Status == record.Running
			state, status = state || !advances || e.From != e.To, status || !advances
		}
	}
	return state, status
}

// ConflictError returns the error of a commit whose instance is not at the expected event.
func (c *Commit) ConflictError() error {
	return fmt.Errorf("%w: instance %s is not at event %d", store.ErrConflict, c.Next.ID, c.Expect)
}
