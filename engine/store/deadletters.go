package store

import (
	"context"
	"errors"
	"iter"
	"time"
)

// DeadLetter is an event that the reader of a cursor failed to deliver and skipped.
type DeadLetter struct {
	Cursor   string `json:"cursor"`
	Position int64  `json:"position"`
	// Instance and Seq identify the event.
	Instance string `json:"id"`
	Seq      int64  `json:"seq"`
	Tries    int    `json:"tries"`
	// Cause is the error of the last try.
	Cause string    `json:"cause"`
	At    time.Time `json:"at"`
}

// Check returns an error if no driver may store the letter.
func (l DeadLetter) Check() error {
	if l.Cursor == "" || l.Position < 1 || l.Instance == "" {
		return errors.New("a dead letter needs a cursor, a position from 1, and an instance")
	}
	return nil
}

// DeadLetters is the part of a store that keeps dead letters, each until it is dropped. They outlive their cursor.
type DeadLetters interface {
	// AddDeadLetter stores a letter and replaces one with the same cursor and position. If lease is not nil and has
	// ended, it returns ErrLeaseLost.
	AddDeadLetter(ctx context.Context, l DeadLetter, lease *Lease) error
	// DeadLetters lists the letters of a cursor, or of all cursors for "", ordered by cursor and position.
	DeadLetters(ctx context.Context, cursor string) iter.Seq2[DeadLetter, error]
	// DropDeadLetter deletes a letter. Errors: ErrNotFound.
	DropDeadLetter(ctx context.Context, cursor string, position int64) error
}
