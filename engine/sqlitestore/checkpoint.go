package sqlitestore

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

// When the write-ahead log is folded into the file, in pages of 4 KiB.
const (
	// checkpointEvery is how many pages this process writes between two rounds
	// (16 MiB): smaller logs are folded too often, larger ones make bigger waves.
	checkpointEvery = 4000
	// hugeLog is how many rounds long a log is whose file is cut once it is folded (64 MiB).
	hugeLog = 4
	// longLog is how many rounds long a log is that the writer has begin anew, although
	// readers use it (32 MiB).
	longLog = 2
	// triesPerRound is how often the writer tries that while a round is written, for the
	// first promptTries times. Then a reader is in the way that stays, and it tries once a
	// round.
	triesPerRound, promptTries = 8, 16
)

// How long the writer waits for readers to end. Everyone who wants to write or to begin
// reading waits with it.
const (
	shortPatience = 100 * time.Millisecond
	longPatience  = 250 * time.Millisecond
)

// How the log's file is kept ahead of what is written into it, in frames of a page each.
const (
	growFrom  = 64  // pages written: who writes a few and ends needs no room
	growBy    = 256 // (1 MiB), as little as the next commit's sync hardly feels
	frameSize = frameHeader + pageSize4K
)

// growLog writes zeros behind the log where its file will soon be full. To sync what was written
// over something is half as dear as to sync a file that became longer: that changes the file
// system too. SQLite takes zeros for the end of the log. Nobody appends meanwhile, in whatever
// process: the lock of writing is held. What fails here leaves the file to grow with the commits.
func (w *writer) growLog(written int) {
	w.growAt = written + growBy/2
	limit := int64(w.checkpointer.every) * 5 / 4 // what a round leaves is written while it runs
	pages, _, err := runCheckpoint(w.conn, "NOOP")
	if err != nil || pages <= 0 || w.tryBegin() != nil {
		return
	}
	defer w.rollback()
	f, err := os.OpenFile(w.path+"-wal", os.O_RDWR, 0) // SQLite locks other files than this one
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
		w.growAt = written + w.checkpointer.every
	case left > growBy/2:
		w.growAt = written + int(left) - growBy/2
	default:
		to := logHeader + frameSize*min(limit, frames+growBy)
		if _, err := f.WriteAt(make([]byte, to-size), size); err != nil {
			_ = f.Truncate(size)
			w.growAt = written + w.checkpointer.every
		}
	}
}

// gate holds readers back for a bounded time.
type gate struct{ shut atomic.Pointer[chan struct{}] }

// wait returns when the gate is open.
func (g *gate) wait() {
	if c := g.shut.Load(); c != nil {
		<-*c
	}
}

// close holds back who comes from now on, until open is called. One at a time may close it.
func (g *gate) close() (open func()) {
	c := make(chan struct{})
	g.shut.Store(&c)
	return func() {
		g.shut.Store(nil)
		close(c)
	}
}

// longLogs is what the writer knows of a log that does not begin anew by itself.
type longLogs struct {
	tries   int // in a row that failed
	next    int // pages written when it tries again; 0 while the log is short
	blocked atomic.Uint64
	warned  bool
}

// isDue reports whether to look at the length of the log again.
func (l *longLogs) isDue(written int) bool { return l.next > 0 && written >= l.next }

// restartLog has a long log begin anew. A checkpoint waits, with short patience, for the
// readers in progress; those of this process that come meanwhile are held back.
func (w *writer) restartLog(pages, written int) {
	l := &w.long
	if pages < longLog*w.checkpointer.every {
		l.tries, l.next, l.warned = 0, 0, false
		return
	}
	patience, mode := shortPatience, "RESTART"
	if l.tries >= promptTries/2 {
		patience = longPatience
	}
	if pages > hugeLog*w.checkpointer.every {
		mode = "TRUNCATE"
	}
	if w.checkpointWithin(patience, mode) {
		l.tries, l.next, l.warned = 0, 0, false
		return
	}
	l.blocked.Add(1)
	l.tries++
	l.next = written + max(1, w.checkpointer.every/triesPerRound)
	if l.tries > promptTries {
		l.next = written + w.checkpointer.every
	}
	if pages > hugeLog*w.checkpointer.every && !l.warned {
		l.warned = true
		w.log.Warn("the write-ahead log is longer than it should be: a reader that does not end keeps it from beginning anew",
			"path", w.path, "bytes", fileSize(w.path+"-wal"))
	}
}

// checkpointWithin folds the log and has it begin anew, waiting for readers for a bounded
// time, and reports whether it did.
func (w *writer) checkpointWithin(patience time.Duration, mode string) bool {
	ctx := context.Background()
	timeout := func(d time.Duration) error {
		_, err := w.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds()))
		return err
	}
	if w.checkpointer != nil {
		w.checkpointer.working.Lock()
		defer w.checkpointer.working.Unlock()
	}
	if timeout(patience) != nil {
		return false
	}
	defer w.readers.close()()
	var busy, pages, folded int
	err := w.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &pages, &folded)
	return timeout(0) == nil && err == nil && busy == 0
}

// checkpointer folds the write-ahead log into the file beside the writer, on a
// connection of its own: a passive checkpoint waits for nobody, and nobody waits
// for it. While it copies, the writer appends; a log starts anew only when all of
// it is folded, so the little that came meanwhile is left to the writer, who is
// the one that can be sure that nothing more comes.
type checkpointer struct {
	db      *sql.DB
	log     *slog.Logger
	every   int
	working sync.Mutex    // two checkpoints at a time are refused
	due     chan struct{} // one place: a round that waits is enough
	rest    atomic.Bool   // the writer is to fold what is left
	cut     atomic.Bool   // and to cut the log's file
	stopped chan struct{}
	warned  bool
}

func newCheckpointer(cfg Config) (*checkpointer, error) {
	db, err := sql.Open(driverName, checkpointerDSN(cfg)) // connects when it is first needed
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	c := &checkpointer{db: db, log: cfg.Logger, every: cfg.checkpointEvery, due: make(chan struct{}, 1), stopped: make(chan struct{})}
	return c, nil
}

// run folds whenever it is due, until stop.
func (c *checkpointer) run() {
	defer close(c.stopped)
	for range c.due {
		if err := c.foldLog(); err != nil && !isBusy(err) && !c.warned {
			c.warned = true // what is acknowledged is in the log: slower, not lost
			c.log.Warn("the write-ahead log could not be folded into the store", "error", classifyError(err))
		}
	}
}

// stop ends run, after the round in progress. wake must not be called any more.
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

// foldLog copies what there is, and once more what came meanwhile, so that little is
// left to the writer. How much that is cannot be told here: a checkpoint knows the
// log as it was when it began.
func (c *checkpointer) foldLog() error {
	c.working.Lock()
	defer c.working.Unlock()
	pages, folded := 0, 0
	for range 2 {
		var err error
		if pages, folded, err = runCheckpoint(c.db, "PASSIVE"); err != nil {
			return err
		}
	}
	if c.isHuge(pages, folded) {
		// A long reader let it grow and is gone. To cut the file takes the lock of writing:
		// against a writer who never rests it would not be had from here.
		c.cut.Store(true)
		return nil
	}
	c.rest.Store(true)
	return nil
}

// isHuge reports whether a log is one to cut: a long one, of which all is folded.
func (c *checkpointer) isHuge(pages, folded int) bool {
	return pages > hugeLog*c.every && pages == folded
}

// querier is what a pool, a connection and a transaction have in common.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// runCheckpoint returns how many pages the log has and how many of them are folded; both
// are -1 while another checkpoint runs.
func runCheckpoint(on querier, mode string) (pages, folded int, err error) {
	var busy int
	err = on.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &pages, &folded)
	return pages, folded, err
}

// pagesWritten is how many pages the writer has written so far.
func (w *writer) pagesWritten() (n int) {
	_ = w.conn.Raw(func(conn any) error { // a connection of this driver has the counter
		if status, ok := conn.(sqlite.DBStatus); ok {
			n, _, _ = status.Status(sqlite.DBStatusCacheWrite, false)
		}
		return nil
	})
	return n
}
