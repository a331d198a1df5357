// Package rows is the form in which drivers that have tables keep what the engine gives them: the
// encoding of a commit into rows, and of rows back into what was committed.
//
// It promises that two drivers write the same bytes for the same commit, so that a store can be
// copied from one to the other. It is pure, and must never know a database.
package rows

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Commit is a commit in the form in which it is written.
type Commit struct {
	store.Commit
	Head, From []byte // the new head, and the one expected
	Facts      []byte
	// Context is nil where the events leave it as it is.
	Context []byte
	// Snapshot is nil where none is asked for. FloorSnapshot is Floor as one, nil where nothing is
	// removed.
	Snapshot, FloorSnapshot []byte
	Keys                    [][]byte // the scopes of the events' keys
	Rows                    []Event  // of Events
	ReviewRows              []Review // of Reviews
	Size                    int      // in bytes, about
}

// Event is an event's row.
type Event struct {
	Seq, Revision int64
	Kind          string
	At            int64  // nanoseconds since 1970
	Scope         []byte // of its key, nil without one
	Prev, Hash    []byte
	Body          []byte
}

// Review is a review's row. Body is its JSON without the data, which stands beside it to come back
// byte for byte; nil without any.
type Review struct {
	ID                            string
	Place                         int // in lists
	Status                        string
	Instance, Workflow, Principal string
	Body, Data                    []byte
}

// NewCommit encodes a commit that was checked.
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

func (p *Commit) addEvent(e record.Event, first bool) (err error) {
	row := Event{Seq: e.Seq, Revision: e.Revision, Kind: string(e.Kind), At: e.Time.UnixNano(), Body: e.Body()}
	if row.Prev, err = hex.DecodeString(e.PrevHash); err != nil {
		return fmt.Errorf("previous hash: %w", err)
	}
	if row.Hash, err = hex.DecodeString(e.Hash); err != nil {
		return fmt.Errorf("hash: %w", err)
	}
	if p.Head = row.Hash; first {
		p.From = row.Prev
	}
	if e.Key != nil {
		if row.Scope, err = hex.DecodeString(e.Key.Scope); err != nil {
			return fmt.Errorf("key scope: %w", err)
		}
		p.Keys = append(p.Keys, row.Scope)
	}
	if touchesContext(e.Kind) {
		p.Context = OrEmpty(p.Next.Context)
	}
	p.Rows = append(p.Rows, row)
	p.Size += len(row.Body)
	return nil
}

// touchesContext reports whether an event may change the context: all but the
// kinds that are known not to.
func touchesContext(k record.Kind) bool {
	switch k {
	case record.Refused, record.Prechecked, record.Checkpointed, record.Cancelling, record.Escalated, record.Reviewed,
		record.Called, record.Settled, record.Released, record.Truncated:
		return false
	case record.Started, record.Advanced, record.RolledBack, record.Undone, record.Redone,
		record.Migrated, record.Imported, record.Reconciled:
	}
	return true
}

// OrEmpty is b, and not NULL where it is nil.
func OrEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// ChangesCalls reports whether calls were begun or ended, or a subject given up.
func (p *Commit) ChangesCalls() bool {
	return slices.ContainsFunc(p.Events, func(e record.Event) bool {
		return e.Kind == record.Called || e.Kind == record.Settled || e.Kind == record.Released
	})
}

// Changes reports whether the state and the status may change: an index of lists that holds one
// would else be written although nothing in it changes.
func (p *Commit) Changes() (state, status bool) {
	for _, e := range p.Events {
		if e.Kind.Revises() {
			advances := e.Kind == record.Advanced && e.Status == record.Running
			state, status = state || !advances || e.From != e.To, status || !advances
		}
	}
	return state, status
}

// Moved is the refusal of a commit whose instance is elsewhere.
func (p *Commit) Moved() error {
	return fmt.Errorf("%w: instance %s is not at event %d", store.ErrConflict, p.Next.ID, p.Expect)
}
