package engine

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/fairshare"
)

// Reads are of two classes. Short ones load what a decision needs and wait for no one.
// Bulk reads list, search, count, fold or export. They take permits from one queue, keyed
// by who calls, work for a turn at a time, and their pages end early rather than growing
// without bound. Drivers keep connections apart for them: see IsBulkRead.
const (
	// turnTime is how long a bulk read works before another one gets its permit.
	turnTime = 20 * time.Millisecond
	// pageTime bounds the work on one page, without the time spent waiting.
	pageTime = 250 * time.Millisecond
	// pageBytes bounds what is recorded of the events of one page.
	pageBytes = 1 << 20
)

type permitKey struct{}

// BulkRead is a bulk read in progress. It belongs to one goroutine.
type BulkRead struct {
	queue   *fairshare.Queue
	caller  string
	release func()
	began   time.Time     // of the present turn
	worked  time.Duration // in the turns before
	bytes   int           // read for the present page
	depth   int           // of operations within operations
}

// BeginBulkRead waits for a permit. The context marks the reads that are made with it; End
// must be called. A bulk read within another one goes on with its permit.
func (e *Engine) BeginBulkRead(ctx context.Context, p Principal) (context.Context, *BulkRead, error) {
	if b, ok := ctx.Value(permitKey{}).(*BulkRead); ok {
		b.depth++
		return ctx, b, nil
	}
	b := &BulkRead{queue: e.reads, caller: p.ID, depth: 1}
	if err := b.Resume(ctx); err != nil {
		return nil, nil, err
	}
	return context.WithValue(store.BulkRead(ctx), permitKey{}, b), b, nil
}

// Resume waits for the permit after a Pause.
func (b *BulkRead) Resume(ctx context.Context) error {
	release, err := b.queue.Acquire(ctx, b.caller)
	switch {
	case err == nil:
		b.release, b.began = release, time.Now()
		return nil
	case errors.Is(err, fairshare.ErrBusy):
		return newError(CodeBusy, "", "Too many of your lists, searches and statistics are waiting to be read.").
			hint("Wait for the answers to earlier ones, then try again.").because(err)
	default:
		return StoreError("read", err)
	}
}

// End gives the permit back.
func (b *BulkRead) End() {
	if b.depth--; b.depth == 0 {
		b.release()
	}
}

// yield lets others go on: short reads at every call, and other bulk reads when the turn is
// over. It must not be called while anything is held that others wait for.
func (b *BulkRead) yield(ctx context.Context) error {
	if time.Since(b.began) < turnTime {
		runtime.Gosched()
		return nil
	}
	b.Pause()
	return b.Resume(ctx)
}

// Pause gives the permit back until the next Resume.
func (b *BulkRead) Pause() {
	b.release()
	b.release = func() {}
	b.worked += time.Since(b.began)
}

func (b *BulkRead) add(bytes int) { b.bytes += bytes }

func (b *BulkRead) isFull() bool { return b.bytes >= pageBytes || b.isOverdue() }

func (b *BulkRead) isOverdue() bool { return b.worked+time.Since(b.began) >= pageTime }

// list is a bulk read of a page of what a caller sees.
type list struct {
	*BulkRead
	sees  sight
	limit int
}

// beginList begins a list, of so many rows as the caller asks for. End must be called.
func (e *Engine) beginList(ctx context.Context, p Principal, asked, usual, most int) (context.Context, list, error) {
	if err := Authorize(p, RightRead); err != nil {
		return nil, list{}, err
	}
	limit, err := pageSize(asked, usual, most)
	if err != nil {
		return nil, list{}, err
	}
	sees, err := e.loadSight(ctx, p)
	if err != nil {
		return nil, list{}, err
	}
	ctx, read, err := e.BeginBulkRead(ctx, p)
	return ctx, list{read, sees, limit}, err
}

// yielding are rows of a store, with others let go on between them. op completes "could not ...".
func yielding[T any](ctx context.Context, b *BulkRead, op string, rows iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for row, err := range rows {
			if err == nil {
				err = b.yield(ctx)
			}
			if err != nil {
				yield(row, StoreError(op, err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// collectEvents reads a page of a list; more says that the list goes on behind it. op
// completes "could not ...".
func (b *BulkRead) collectEvents(ctx context.Context, op string, list iter.Seq2[store.PlacedEvent, error], limit int) (page []store.PlacedEvent, more bool, _ error) {
	for ev, err := range yielding(ctx, b, op, list) {
		if err != nil {
			return nil, false, err
		}
		if n := len(page); n == limit || n > 0 && b.isFull() {
			return page, true, nil
		}
		page = append(page, ev)
		b.add(len(ev.Event.Body()))
	}
	return page, false, nil
}

// maxCounted bounds the work of counting: each decision in SQLite takes 20 µs on a quiet machine.
const maxCounted = 1000

// countEvents counts the events of a list; nil where there are more than maxCounted.
func (b *BulkRead) countEvents(ctx context.Context, op string, list iter.Seq2[store.PlacedEvent, error]) (*int, error) {
	n := 0
	for _, err := range yielding(ctx, b, op, list) {
		if err != nil {
			return nil, err
		}
		if n++; n > maxCounted {
			return nil, nil
		}
	}
	return &n, nil
}

// showEvents renders a page, or as much of it as there is time for: at least one event. The
// page was collected before, because rendering reads the store, too.
func showEvents[V any](ctx context.Context, b *BulkRead, page []store.PlacedEvent, render func(store.PlacedEvent) (V, error)) ([]V, error) {
	shown := make([]V, 0, len(page))
	for _, ev := range page {
		if err := b.yield(ctx); err != nil {
			return nil, err
		}
		view, err := render(ev)
		if err != nil {
			return nil, err
		}
		if shown = append(shown, view); b.isOverdue() {
			break
		}
	}
	return shown, nil
}

// YieldBulkRead is yield of the bulk read that a context belongs to, if it does.
func YieldBulkRead(ctx context.Context) error {
	if b, ok := ctx.Value(permitKey{}).(*BulkRead); ok {
		return b.yield(ctx)
	}
	return nil
}
