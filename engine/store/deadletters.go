package store

import (
	"context"
	"errors"
	"iter"
	"time"
)

// DeadLetter is an event that the reader of a cursor could not hand on, and moved past.
type DeadLetter struct {
	Cursor   string `json:"cursor"`
	Position int64  `json:"position"`
	// Instance and Seq are those of the event.
	Instance string `json:"id"`
	Seq      int64  `json:"seq"`
	Tries    int    `json:"tries"`
	// Cause is why the last try failed.
	Cause string    `json:"cause"`
	At    time.Time `json:"at"`
}

// Check fails for what no driver keeps.
func (l DeadLetter) Check() error {
	if l.Cursor == "" || l.Position < 1 || l.Instance == "" {
		return errors.New("a dead letter needs a cursor, a position from 1, and an instance")
	}
	return nil
}

// DeadLetters is the part of a store that keeps dead letters, each until it is dropped. They outlive
// their cursor.
type DeadLetters interface {
	// AddDeadLetter keeps a letter, in place of the one of its cursor and position. Where lease is
	// not nil, ErrLeaseLost when that has ended.
	AddDeadLetter(ctx context.Context, l DeadLetter, lease *Lease) error
	// DeadLetters lists the letters of a cursor, of all for "", by cursor and position.
	DeadLetters(ctx context.Context, cursor string) iter.Seq2[DeadLetter, error]
	// DropDeadLetter forgets a letter. ErrNotFound.
	DropDeadLetter(ctx context.Context, cursor string, position int64) error
}
