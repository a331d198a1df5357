package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
)

// When the write-ahead log is checkpointed, in pages of 4 KiB.
const (
	// checkpointEvery is how many pages this process writes between two checkpoints (16 MiB). Smaller values
	// checkpoint too often; larger ones cause bigger bursts.
	checkpointEvery = 4000
	// truncateFactor is the length, in multiples of checkpointEvery, above which the log file is truncated (64 MiB).
	truncateFactor = 4
	// restartFactor is the length, in multiples of checkpointEvery, from which the writer makes the log restart even while
	// readers use it (32 MiB).
	restartFactor = 2
	// triesPerRound is how often the writer tries this per checkpointEvery pages, for the first promptTries tries.
	// After that a reader is evidently long-lived, and the writer tries only once per checkpointEvery pages.
	triesPerRound, promptTries = 8, 16
)

// How long the writer waits for readers to finish. New writers and readers wait with it.
const (
	shortReaderWait = 100 * time.Millisecond
	longReaderWait  = 250 * time.Millisecond
)

// How far the log file is grown ahead of the writes, in frames of one page each.
const (
	growFrom  = 64  // pages written; short sessions need no space ahead
	growBy    = 256 // 1 MiB, which adds hardly any time to the next commit's sync
	frameSize = frameHeader + pageSize4K
)

// growLog appends zeros to the log file before it is full. Syncing overwritten bytes costs half as much as syncing a
// file that grew, because growth also changes file system metadata. SQLite takes zeros for the end of the log. The
// write lock is held, so that no other process appends at the same time. If growLog fails, the file grows with the
// commits instead.
func (w *writer) growLog(written int) {
	w.growAt = written + growBy/2
	limit := int64(w.checkpointer.interval) * 5 / 4 // a checkpoint leaves pages that are written while it runs
	pages, _, err := runCheckpoint(w.conn, "NOOP")
	if err != nil || pages <= 0 || w.tryBegin() != nil {
		return
	}
	defer w.rollback()
	f, err := os.OpenFile(w.path+"-wal", os.O_RDWR, 0) // SQLite does not lock this file
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }() // nothing depends on these zeros
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || !w.files.isOpen(w.path+"-wal", f) {
		return
	}
	frames := max(size-logHeader, 0) / frameSize
	left := frames - int64(pages)
	switch {
	case frames >= limit:
		w.growAt = written + w.checkpointer.interval
	case left > growBy/2:
		w.growAt = written + int(left) - growBy/2
	default:
		to := logHeader + frameSize*min(limit, frames+growBy)
		if _, err := f.WriteAt(make([]byte, to-size), size); err != nil {
			_ = f.Truncate(size)
			w.growAt = written + w.checkpointer.interval
		}
	}
}

// gate blocks readers for a limited time.
type gate struct{ closed atomic.Pointer[chan struct{}] }

// wait returns when the gate is open.
func (g *gate) wait() {
	if c := g.closed.Load(); c != nil {
		<-*c
	}
}

// close blocks new readers until open is called. Only one caller at a time may close the gate.
func (g *gate) close() (open func()) {
	c := make(chan struct{})
	g.closed.Store(&c)
	return func() {
		g.closed.Store(nil)
		close(c)
	}
}

// restartState is the writer's state for a log that has grown long because it does not restart.
type restartState struct {
	failedTries int // consecutive failed tries
	next        int // pages written at the next try; 0 while the log is short
	blocked     atomic.Uint64
	warned      bool
}

// isDue reports whether to check the log's length again.
func (l *restartState) isDue(written int) bool { return l.next > 0 && written >= l.next }

// restartLog makes a long log restart. Its checkpoint waits briefly for readers in progress; new readers of this
// process are blocked until it ends.
func (w *writer) restartLog(pages, written int) {
	l := &w.restart
	if pages < restartFactor*w.checkpointer.interval {
		l.failedTries, l.next, l.warned = 0, 0, false
		return
	}
	patience, mode := shortReaderWait, "RESTART"
	if l.failedTries >= promptTries/2 {
		patience = longReaderWait
	}
	if pages > truncateFactor*w.checkpointer.interval {
		mode = "TRUNCATE"
	}
	if w.checkpointWithin(patience, mode) {
		l.failedTries, l.next, l.warned = 0, 0, false
		return
	}
	l.blocked.Add(1)
	l.failedTries++
	l.next = written + max(1, w.checkpointer.interval/triesPerRound)
	if l.failedTries > promptTries {
		l.next = written + w.checkpointer.interval
	}
	if pages > truncateFactor*w.checkpointer.interval && !l.warned {
		l.warned = true
		w.log.Warn("the write-ahead log is too long: a long-running reader prevents its reset",
			"path", w.path, "bytes", fileSize(w.path+"-wal"))
	}
}

// checkpointWithin checkpoints the log and makes it restart, waiting for readers for a limited time. It reports
// whether it succeeded.
func (w *writer) checkpointWithin(patience time.Duration, mode string) bool {
	ctx := context.Background()
	timeout := func(d time.Duration) error {
		_, err := w.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds()))
		return err
	}
	if w.checkpointer != nil {
		w.checkpointer.running.Lock()
		defer w.checkpointer.running.Unlock()
	}
	if timeout(patience) != nil {
		return false
	}
	defer w.readers.close()()
	var busy, pages, folded int
	err := w.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &pages, &folded)
	return timeout(0) == nil && err == nil && busy == 0
}

// checkpointer checkpoints the write-ahead log concurrently with the writer, on its own connection. A passive
// checkpoint neither waits nor makes others wait, and the writer appends while it copies. A log restarts only once
// all of its frames are checkpointed. Frames appended during the checkpoint are left to the writer: only the writer
// can be sure that no more follow.
type checkpointer struct {
	db             *sql.DB
	log            *slog.Logger
	interval       int
	running        sync.Mutex    // concurrent checkpoints are refused
	due            chan struct{} // capacity 1: one pending checkpoint is enough
	mustCheckpoint atomic.Bool   // the writer must checkpoint the rest
	mustTruncate   atomic.Bool   // the writer must also truncate the log file
	stopped        chan struct{}
	warned         bool
}

func newCheckpointer(cfg Config) (*checkpointer, error) {
	db, err := sql.Open(driverName, checkpointerDSN(cfg)) // connects on first use
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	c := &checkpointer{db: db, log: cfg.Logger, interval: cfg.checkpointEvery, due: make(chan struct{}, 1), stopped: make(chan struct{})}
	return c, nil
}

// run checkpoints whenever a checkpoint is due, until stop.
func (c *checkpointer) run() {
	defer close(c.stopped)
	for range c.due {
		if err := c.checkpointLog(); err != nil && !isBusy(err) && !c.warned {
			c.warned = true // acknowledged writes are in the log: this is slower, but nothing is lost
			c.log.Warn("the write-ahead log could not be checkpointed into the store", "error", classifyError(err))
		}
	}
}

// stop ends run after the checkpoint in progress. wake must not be called afterwards.
func (c *checkpointer) stop() error {
	close(c.due)
	<-c.stopped
	return c.db.Close()
}

func (c *checkpointer) wake() {
	select {
	case c.due <- struct{}{}:
	default:
	}
}

// checkpointLog checkpoints the log twice, the second time for frames appended during the first, so that the writer has
// little left to do. The remainder is unknown here: a checkpoint reports the log's length as of its start.
func (c *checkpointer) checkpointLog() error {
	c.running.Lock()
	defer c.running.Unlock()
	pages, folded := 0, 0
	for range 2 {
		var err error
		if pages, folded, err = runCheckpoint(c.db, "PASSIVE"); err != nil {
			return err
		}
	}
	if c.mustShrink(pages, folded) {
		// A long-running reader let the log grow and has ended. Truncation needs the write lock, which the
		// checkpointer may never get from a writer that is always busy.
		c.mustTruncate.Store(true)
		return nil
	}
	c.mustCheckpoint.Store(true)
	return nil
}

// mustShrink reports whether a log should be truncated: it is long and entirely checkpointed.
func (c *checkpointer) mustShrink(pages, folded int) bool {
	return pages > truncateFactor*c.interval && pages == folded
}

// querier is implemented by pools, connections and transactions.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// runCheckpoint returns the number of pages in the log and how many of them are checkpointed. Both are -1 while
// another checkpoint runs.
func runCheckpoint(on querier, mode string) (pages, folded int, err error) {
	var busy int
	err = on.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &pages, &folded)
	return pages, folded, err
}

// pagesWritten returns the number of pages that the writer has written so far.
func (w *writer) pagesWritten() (n int) {
	_ = w.conn.Raw(func(conn any) error { // the connections of this driver provide the counter
		if status, ok := conn.(sqlite.DBStatus); ok {
			n, _, _ = status.Status(sqlite.DBStatusCacheWrite, false)
		}
		return nil
	})
	return n
}
