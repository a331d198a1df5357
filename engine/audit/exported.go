package audit

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
)

// DefaultForgottenAfter is how long a cursor must stay unmoved, with newer events above it, to count as forgotten.
const DefaultForgottenAfter = 30 * 24 * time.Hour

// unexported identifies the events that the readers with cursors have not received yet.
type unexported struct {
	store store.Store
	// minPosition is the position that every cursor has passed.
	minPosition int64
	// firstDeadLetters are the lowest seqs of dead letters, by instance: they may be sent again.
	firstDeadLetters map[string]int64
}

// readUnexported reads the cursors and dead letters, and returns the forgotten cursors. If
// req.PassForgotten is set, it ignores these cursors, and dead letters of that age.
func (a *Auditor) readUnexported(ctx context.Context, req RetainRequest) (u unexported, forgotten []store.Cursor, err error) {
	u = unexported{store: a.store, minPosition: math.MaxInt64, firstDeadLetters: map[string]int64{}}
	old := a.engine.Now().Add(-cmp.Or(req.ForgottenAfter, DefaultForgottenAfter))
	last, err := a.store.LastPosition(ctx)
	if err != nil {
		return u, nil, engine.StoreError("find the last event", err)
	}
	cursors, err := a.store.Cursors(ctx)
	if err != nil {
		return u, nil, engine.StoreError("list the cursors", err)
	}
	for _, c := range cursors {
		isForgotten := c.Position < last && c.MovedAt.Before(old)
		if isForgotten {
			forgotten = append(forgotten, c)
		}
		if !isForgotten || !req.PassForgotten {
			u.minPosition = min(u.minPosition, c.Position)
		}
	}
	if u.minPosition >= last {
		u.minPosition = math.MaxInt64 // events recorded from now on are too recent to be removed
	}
	for l, err := range a.store.DeadLetters(ctx, "") {
		if err != nil {
			return u, nil, engine.StoreError("list the dead letters", err)
		}
		if seq, known := u.firstDeadLetters[l.Instance]; (!known || l.Seq < seq) && (!req.PassForgotten || !l.At.Before(old)) {
			u.firstDeadLetters[l.Instance] = l.Seq
		}
	}
	return u, forgotten, nil
}

// firstUnread returns the seq of the first event of an instance that a reader still needs.
func (u unexported) firstUnread(ctx context.Context, instance string) (int64, error) {
	first, found := u.firstDeadLetters[instance]
	if !found {
		first = math.MaxInt64
	}
	if u.minPosition == math.MaxInt64 {
		return first, nil
	}
	for ev, err := range u.store.EventsAfter(ctx, store.TailQuery{After: u.minPosition, Instance: instance, Limit: 1}) {
		if err != nil {
			return 0, err
		}
		first = min(first, ev.Event.Seq)
	}
	return first, nil
}
