package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// Limits of a transaction.
const (
	maxBatch      = 256
	maxBatchBytes = 8 << 20
)

// How a writer waits for another process's lock. The waits are short because the other process holds the lock for one
// fsync at a time and takes it again immediately.
const (
	minLockWait = 100 * time.Microsecond
	maxLockWait = 4 * time.Millisecond
	// closingWait limits the wait for the lock once the store is being closed.
	closingWait = 500 * time.Millisecond
)

type request struct {
	// apply writes within the open transaction. An error for which isRefusal is true means that it wrote nothing;
	// after any other error the transaction is rolled back. apply may be called twice.
	apply func(*statements) error
	size  int
	err   error
	done  chan error // receives one value when the outcome is certain
	state atomic.Int32
}

const (
	waiting int32 = iota
	claimed
	abandoned
)

// claim claims the request for a transaction; its caller can no longer cancel.
func (r *request) claim() bool { return r.state.CompareAndSwap(waiting, claimed) }

// writer makes all writes of a process, on one connection. Its goroutine makes the queued ones. If no one else is
// writing, a caller may write directly instead of waiting for the goroutine.
type writer struct {
	db           *sql.DB
	busy         time.Duration
	queue        chan *request
	upkeepDue    chan struct{} // capacity 1: upkeep is due
	stopped      chan struct{} // closed when the goroutine has ended
	urgent       chan struct{} // closed when the store is being closed
	once         sync.Once
	path         string
	files        files
	log          *slog.Logger
	ending       chan struct{} // closed to end watch
	watchEnded   chan struct{} // closed when watch has ended
	batches      atomic.Uint64 // committed transactions
	writes       atomic.Uint64 // writes in them
	singleWrites atomic.Int32  // consecutive transactions with a single write

	mu              sync.Mutex // held to write; it guards the fields below
	conn            *sql.Conn
	stmts           statements
	heads           *heads        // receives the changes of each transaction
	batch           []*request    // of the open transaction; reused
	checkpointer    *checkpointer // nil if commits checkpoint
	checkpointWoken int           // pages written when the checkpointer was last woken
	growAt          int           // pages written when the log file may need to grow
	lastQueued      int           // requests queued at the last attempt to begin
	restart         restartState
	readers         gate // blocks new reads of this process
	isLogSaved      bool // the log has lost its name, and all of it is in the database
}

// directWriteAfter is the number of consecutive single-write transactions after which callers write directly. With two
// writers such runs are rare, and waiting forms batches. A single writer is spared two goroutine switches (decision
// 0028).
const directWriteAfter = 8

func openWriter(ctx context.Context, cfg Config) (*writer, error) {
	db, err := sql.Open(driverName, writerDSN(cfg))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	w := &writer{
		db: db, path: cfg.Path, log: cfg.Logger, busy: cfg.BusyTimeout, ending: make(chan struct{}), watchEnded: make(chan struct{}), queue: make(chan *request, 4*maxBatch), upkeepDue: make(chan struct{}, 1),
		growAt: math.MaxInt, stopped: make(chan struct{}), urgent: make(chan struct{}),
	}
	err = retryWhileBusy(ctx, w.busy, func() (err error) {
		if w.conn == nil {
			if w.conn, err = db.Conn(ctx); err != nil {
				return err
			}
		}
		if err := setUp(ctx, w.conn); err != nil {
			return err
		}
		return prepareAll(ctx, w.conn, w.stmts.all())
	})
	if err == nil && runtime.GOOS != "windows" { // Windows cannot move or delete an open file
		w.files, err = filesOf(cfg.Path, "", "-wal", "-shm")
		w.growAt = growFrom
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.heads = newHeads(openWALIndex(cfg.Path))
	return w, nil
}

func (w *writer) close() error {
	var err error
	if w.conn != nil {
		err = errors.Join(w.stmts.close(), w.conn.Close())
	}
	err = errors.Join(err, w.db.Close())
	if w.heads != nil {
		err = errors.Join(err, w.heads.index.close())
	}
	return err
}

func (w *writer) start() {
	if w.checkpointer != nil {
		go w.checkpointer.run()
	}
	go w.run()
	go w.watch()
}

// stop ends the goroutine once the queue is empty, checkpoints the log and releases the connection. submit must not
// be called afterwards.
func (w *writer) stop() error {
	close(w.queue)
	<-w.stopped
	close(w.ending)
	<-w.watchEnded
	w.saveLog()
	var err error
	if w.checkpointer != nil {
		err = w.checkpointer.stop()
	}
	ctx := context.Background()
	// Best effort: another reader or writer may block the checkpoint. The next process to open the file then makes
	// it.
	if w.files.isSame(w.path) { // otherwise only the log still has a name
		_, _ = w.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	return errors.Join(err, w.close())
}

// submit writes directly, or queues a write and waits for its outcome. If ctx ends before a transaction has taken the
// request, it withdraws the request.
func (w *writer) submit(ctx context.Context, size int, apply func(*statements) error) error {
	r := &request{apply: apply, size: size, done: make(chan error, 1)}
	if w.writeDirectly(r) {
		return <-r.done
	}
	select {
	case w.queue <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if r.state.CompareAndSwap(waiting, abandoned) {
			return ctx.Err()
		}
		return <-r.done
	}
}

// writeDirectly writes on the caller's goroutine if no one else has written for a while, and reports whether it did.
// If anything prevents that, the write goes to the queue, which retries.
func (w *writer) writeDirectly(r *request) bool {
	if w.singleWrites.Load() < directWriteAfter || len(w.queue) > 0 || !w.mu.TryLock() {
		return false
	}
	defer w.mu.Unlock()
	if w.tryBegin() != nil {
		return false
	}
	w.exitOnPanic(func() { w.commit(r) })
	if w.checkpointer == nil {
		return true
	}
	written := w.pagesWritten()
	if w.checkpointer.mustTruncate.Load() || w.checkpointer.mustCheckpoint.Load() || w.restart.isDue(written) || written >= w.growAt {
		select {
		case w.upkeepDue <- struct{}{}: // the caller does not wait for it
		default:
		}
	}
	w.wakeCheckpointer(written)
	return true
}

// exitOnPanic ends the process if f panics, as a panic on the writer's goroutine would. The caller might otherwise
// recover and leave the transaction open.
func (w *writer) exitOnPanic(f func()) {
	defer func() {
		if p := recover(); p != nil {
			stack := debug.Stack()
			go panic(fmt.Sprintf("%v\n%s", p, stack))
			select {}
		}
	}()
	f()
}

func (w *writer) run() {
	defer close(w.stopped)
	for {
		select {
		case first, ok := <-w.queue:
			if !ok {
				return
			}
			w.mu.Lock()
			w.transact(first)
			w.maintainLog()
			w.mu.Unlock()
		case <-w.upkeepDue:
			w.mu.Lock()
			w.maintainLog()
			w.mu.Unlock()
		}
	}
}

// maintainLog maintains the log between two transactions, after all callers have their results. Its failures affect no
// acknowledged write.
func (w *writer) maintainLog() {
	if w.checkpointer == nil {
		return
	}
	written := w.pagesWritten()
	cut, rest := w.checkpointer.mustTruncate.CompareAndSwap(true, false), w.checkpointer.mustCheckpoint.CompareAndSwap(true, false)
	if cut || rest || w.restart.isDue(written) {
		pages, folded, err := runCheckpoint(w.conn, "PASSIVE")
		cut = cut || err == nil && w.checkpointer.mustShrink(pages, folded) // the file would keep its length
		if cut {
			pages, _, err = runCheckpoint(w.conn, "TRUNCATE")
		}
		if err == nil && pages >= 0 { // otherwise another checkpoint runs, and the length is unknown
			w.restartLog(pages, written)
		}
	}
	if written >= w.growAt {
		w.growLog(written)
	}
	w.wakeCheckpointer(written)
}

// wakeCheckpointer wakes the checkpointer once enough pages were written.
func (w *writer) wakeCheckpointer(written int) {
	if written-w.checkpointWoken >= w.checkpointer.interval {
		w.checkpointWoken = written
		w.checkpointer.wake()
	}
}

// transact runs one transaction with first and all queued requests that fit.
func (w *writer) transact(first *request) {
	if err := w.begin(); err != nil {
		w.failQueued(first, err)
		return
	}
	w.commit(first)
}

// commit completes the open transaction, with first and all queued requests that fit.
func (w *writer) commit(first *request) {
	w.batch = w.batch[:0]
	size, written := 0, 0
	for r := first; r != nil; r = w.next(len(w.batch), size) {
		if !r.claim() {
			continue
		}
		w.batch = append(w.batch, r)
		size += r.size
		r.err = r.apply(&w.stmts)
		switch {
		case r.err == nil:
			written++
		case !isRefusal(r.err):
			w.rollback()
			w.commitEach(w.batch)
			return
		}
	}
	if err := w.finish(written > 0); err != nil {
		w.commitEach(w.batch)
		return
	}
	w.count(written)
	w.recordBatch(len(w.batch))
	for _, r := range w.batch {
		r.done <- r.err
	}
	clear(w.batch)
}

func (w *writer) recordBatch(writes int) {
	if writes > 1 {
		w.singleWrites.Store(0)
	} else if w.singleWrites.Load() < directWriteAfter {
		w.singleWrites.Add(1)
	}
}

// next returns a queued request that still fits, or nil. Requests that are not queued yet belong to the next
// transaction.
func (w *writer) next(count, size int) *request {
	if count >= maxBatch || size >= maxBatchBytes {
		return nil
	}
	select {
	case r := <-w.queue:
		return r // nil once the queue is closed
	default:
		return nil
	}
}

// commitEach retries each request of a failed transaction in a separate transaction, so that only the faulty one
// fails.
func (w *writer) commitEach(batch []*request) {
	for i, r := range batch {
		if err := w.begin(); err != nil {
			for _, r := range batch[i:] {
				r.done <- err
			}
			break
		}
		err := r.apply(&w.stmts)
		if err != nil {
			w.rollback()
		} else if err = w.finish(true); err == nil {
			w.count(1)
		}
		r.done <- err
	}
	clear(batch)
}

// isRefusal reports whether apply returned an error without having written anything.
func isRefusal(err error) bool {
	for _, known := range []error{store.ErrConflict, store.ErrKeyTaken, store.ErrSubjectTaken, store.ErrLeaseTaken, store.ErrLeaseLost, store.ErrNotFound} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// begin takes the write lock of the file, waiting for other processes.
func (w *writer) begin() error {
	start := time.Now()
	hurry, wait, patience := w.urgent, minLockWait, w.busy
	for {
		err := w.tryBegin()
		if !isBusy(err) {
			return err
		}
		if time.Since(start) >= patience {
			return fmt.Errorf("waited %s%s: %w", time.Since(start).Round(time.Millisecond), lockHolder(w.path), err)
		}
		timer := time.NewTimer(wait + rand.N(wait)) //nolint:gosec // jitter
		select {
		case <-timer.C:
			wait = min(2*wait, maxLockWait)
		case <-hurry:
			timer.Stop()
			patience, hurry = min(patience, time.Since(start)+closingWait), nil
		}
	}
}

// tryBegin takes the write lock of the file, or returns the reason why it cannot.
func (w *writer) tryBegin() error {
	w.lastQueued = len(w.queue)
	if err := w.files.checkPresent(); err != nil {
		w.saveLog()
		return err
	}
	w.stmts.changes = w.stmts.changes[:0]
	return w.stmts.exec(w.stmts.begin)
}

// finish commits, or rolls back if nothing was written. An error means that the transaction was rolled back.
func (w *writer) finish(written bool) error {
	if !written {
		w.rollback()
		return nil
	}
	w.heads.beforeCommit()
	err := w.stmts.exec(w.stmts.commit)
	w.heads.afterCommit(err == nil, w.stmts.changes)
	clear(w.stmts.changes)
	if err != nil {
		w.rollback()
	}
	return err
}

// rollback rolls back the transaction. Its error adds nothing: after some failures, SQLite has already rolled back.
func (w *writer) rollback() { _ = w.stmts.exec(w.stmts.rollback) }

// failQueued returns err to the requests that were queued when begin last tried. Later requests do not fail: the
// obstacle may be gone by then, perhaps removed by the first caller to get the error.
func (w *writer) failQueued(first *request, err error) {
	for r, left := first, w.lastQueued; r != nil; left-- {
		if r.claim() {
			r.done <- err
		}
		if left == 0 {
			return
		}
		r = w.next(0, 0)
	}
}
