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

// There are two classes of reads. Short reads load the input of a decision and never wait. Bulk reads list,
// search, count, fold or export. They take permits from one queue, keyed by caller, and work one turn at a
// time. They end their pages early rather than let them grow without bound. Drivers use separate connections
// for them: see store.IsBulkRead.
const (
	// bulkTimeSlice is how long a bulk read works before another one gets the permit.
	bulkTimeSlice = 20 * time.Millisecond
	// pageTime limits the work on one page, excluding the time spent waiting.
	pageTime = 250 * time.Millisecond
	// pageBytes limits the recorded bytes of the events of one page.
	pageBytes = 1 << 20
)

type permitKey struct{}

// BulkRead is a bulk read in progress. It belongs to one goroutine.
type BulkRead struct {
	queue      *fairshare.Queue
	caller     string
	release    func()
	sliceStart time.Time     // of the current turn
	worked     time.Duration // in the previous turns
	bytes      int           // read for the current page
	depth      int           // of nested bulk reads
}

// BeginBulkRead waits for a permit. Reads made with the returned context are marked as bulk reads. Callers
// must call End. A nested bulk read uses the permit of the outer one.
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
		b.release, b.sliceStart = release, time.Now()
		return nil
	case errors.Is(err, fairshare.ErrBusy):
		return newError(CodeBusy, "", "Too many of your lists, searches and statistics are queued.").
			withHint("Wait for the answers to earlier ones, then try again.").withCause(err)
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

// yield gives way to other work: to short reads at every call, and to other bulk reads when the turn is
// over. Callers must not hold anything that others wait for.
func (b *BulkRead) yield(ctx context.Context) error {
	if time.Since(b.sliceStart) < bulkTimeSlice {
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
	b.worked += time.Since(b.sliceStart)
}

func (b *BulkRead) add(bytes int) { b.bytes += bytes }

func (b *BulkRead) isFull() bool { return b.bytes >= pageBytes || b.isOverdue() }

func (b *BulkRead) isOverdue() bool { return b.worked+time.Since(b.sliceStart) >= pageTime }

// list is a bulk read of one page of the rows that a caller may see.
type list struct {
	*BulkRead
	sight sight
	limit int
}

// beginList begins a list with the page size that the caller asked for. Callers must call End.
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

// withYield iterates over rows of a store and yields to other work between them. op is the operation for
// StoreError.
func withYield[T any](ctx context.Context, b *BulkRead, op string, rows iter.Seq2[T, error]) iter.Seq2[T, error] {
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

// collectEvents reads a page of a list; more reports whether further events follow. op is the operation for
// StoreError.
func (b *BulkRead) collectEvents(ctx context.Context, op string, list iter.Seq2[store.PlacedEvent, error], limit int) (page []store.PlacedEvent, more bool, _ error) {
	for ev, err := range withYield(ctx, b, op, list) {
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

// maxCounted limits the work of counting: each decision in SQLite takes 20 µs on an idle machine.
const maxCounted = 1000

// countEvents counts the events of a list. It returns nil if there are more than maxCounted.
func (b *BulkRead) countEvents(ctx context.Context, op string, list iter.Seq2[store.PlacedEvent, error]) (*int, error) {
	n := 0
	for _, err := range withYield(ctx, b, op, list) {
		if err != nil {
			return nil, err
		}
		if n++; n > maxCounted {
			return nil, nil
		}
	}
	return &n, nil
}

// showEvents renders a page, or as many of its events as time allows: at least one. The page must have
// been collected first, because rendering also reads the store.
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

// YieldBulkRead yields to other work if the context belongs to a bulk read.
func YieldBulkRead(ctx context.Context) error {
	if b, ok := ctx.Value(permitKey{}).(*BulkRead); ok {
		return b.yield(ctx)
	}
	return nil
}
