package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// The index of decisions, and the figures counted with it, lag behind the events. A goroutine updates them in short
// writer transactions, because other writes wait for each (decision 0030). A search that finds the index far behind
// does the same for a limited time.
const (
	// maxIndexBatch is the number of events that one transaction indexes.
	maxIndexBatch = 256
	// unindexed is the number of recent events that a search scans instead of indexing them.
	unindexed = 256
	// indexTimeLimit limits how long a search indexes before it scans the rest, newest first. The first search of a large
	// store must not take a minute.
	indexTimeLimit = 3 * time.Second
	// indexWriterWait limits how long a search waits for the writer.
	indexWriterWait = time.Second
	// indexRetryPause is how long indexing pauses after a failed write of the index.
	indexRetryPause = 10 * time.Second
	// indexPause is how long fewer than maxIndexBatch events wait to be indexed.
	indexPause = 2 * time.Second
	// indexPauseFactor is the pause after a step while others write, as a multiple of the step's duration.
	indexPauseFactor = 15
)

// indexer is the indexing goroutine with the signals that it receives.
type indexer struct {
	due     chan struct{} // capacity 1: something was committed
	many    chan struct{} // capacity 1: at least one full batch was committed
	behind  atomic.Int64  // events not indexed yet, as far as this process knows
	cancel  context.CancelFunc
	stopped chan struct{}
}

// startIndexer starts the indexing goroutine, which begins with the events that earlier processes left unindexed.
func (s *Store) startIndexer(pause time.Duration) {
	ctx, cancel := context.WithCancel(store.BulkRead(context.Background()))
	x := &indexer{due: make(chan struct{}, 1), many: make(chan struct{}, 1), cancel: cancel, stopped: make(chan struct{})}
	x.due <- struct{}{}
	s.indexer = x
	go func() {
		defer close(x.stopped)
		for {
			select {
			case <-ctx.Done():
				return
			case <-x.due:
			}
			x.pause(ctx, pause, x.many)
			for few := true; s.runStep(ctx, few); {
				few = false
			}
		}
	}()
}

// pause waits for a duration, or until it is woken.
func (i *indexer) pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// stop ends the goroutine after the transaction in progress.
func (i *indexer) stop() {
	if i != nil {
		i.cancel()
		<-i.stopped
	}
}

// notify signals that events were committed.
func (i *indexer) notify(events int) {
	if i == nil || events == 0 {
		return
	}
	signalOnce(i.due)
	if i.behind.Add(int64(events)) >= maxIndexBatch {
		signalOnce(i.many)
	}
}

// signalOnce sends on a channel of capacity 1, unless it is full.
func signalOnce(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runStep indexes one batch or counts one block, and then pauses. It indexes a partial batch only if few is set. It
// reports whether there may be more to do right away.
func (s *Store) runStep(ctx context.Context, few bool) bool {
	began, writes := time.Now(), s.writer.writes.Load()
	reached, last, err := s.indexPosition(ctx)
	s.indexer.behind.Store(last - reached)
	if behind := last - reached; err == nil && !few && behind > 0 && behind < maxIndexBatch { // indexed later
		signalOnce(s.indexer.due)
		return false
	}
	var step *indexStep
	if err == nil {
		step, err = s.nextStep(ctx, reached, last)
	}
	if err == nil && step != nil {
		err = s.applyStep(ctx, step)
	}
	rest := time.Duration(0)
	switch {
	case ctx.Err() != nil, errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrConflict): // another process indexes the same events
		return false
	case err != nil:
		s.pauseIndexing(ctx, err)
		s.indexer.pause(ctx, indexRetryPause, nil)
		return false
	case step == nil:
		return false
	case s.writer.writes.Load() > writes+1:
		rest = indexPauseFactor * time.Since(began)
	}
	s.indexer.pause(ctx, rest, nil)
	return true
}

// indexStep is one transaction of the index. If the data that it was built from has changed, it returns
// store.ErrConflict, or leaves a block to be counted later.
type indexStep struct {
	size  int
	apply func(*statements) error
}

// nextStep returns the next step, or nil if there is nothing left to do.
func (s *Store) nextStep(ctx context.Context, reached, last int64) (*indexStep, error) {
	if last > reached {
		return s.indexBehind(ctx, reached)
	}
	return s.countBlock(ctx, reached)
}

func (s *Store) applyStep(ctx context.Context, step *indexStep) error {
	ctx, cancel := context.WithTimeout(ctx, indexWriterWait)
	defer cancel()
	return s.write(ctx, step.size, "index decisions", step.apply)
}

// indexPosition returns the position up to which events are indexed, and the position of the newest event.
func (s *Store) indexPosition(ctx context.Context) (reached, last int64, err error) {
	err = s.read(ctx, "the index of decisions", func(ctx context.Context) error {
		const query = `SELECT pos, max(pos, (SELECT coalesce(max(pos), 0) FROM events)) FROM decision_index`
		return s.poolFor(ctx).QueryRowContext(ctx, query).Scan(&reached, &last)
	})
	return reached, last, err
}

// pauseIndexing logs why the index cannot be written, and makes searches leave it alone for indexRetryPause.
func (s *Store) pauseIndexing(ctx context.Context, err error) {
	s.indexNotBefore.Store(time.Now().Add(indexRetryPause).UnixNano())
	s.log.WarnContext(ctx, "the index of decisions cannot be written; searches are slower", "cause", err.Error())
}

// updateIndex indexes the events present at its start, except the newest few, for a limited time. It returns the
// position that the index has reached. If the index cannot be written, it stays as it is and the search scans more.
func (s *Store) updateIndex(ctx context.Context) (reached int64, err error) {
	newest, until := int64(-1), time.Now().Add(s.indexTimeLimit)
	for {
		reached, last, err := s.indexPosition(ctx)
		if err != nil {
			return 0, err
		}
		if newest < 0 {
			newest = last // events committed from here on are left to later updates
		} else if time.Now().After(until) {
			return reached, nil
		}
		if newest-reached <= unindexed || s.writer == nil || time.Now().UnixNano() < s.indexNotBefore.Load() {
			return reached, nil
		}
		step, err := s.indexBehind(ctx, reached)
		if err == nil {
			err = s.applyStep(ctx, step)
		}
		switch {
		case err == nil, errors.Is(err, store.ErrConflict): // another search was faster
		case ctx.Err() != nil, errors.Is(err, store.ErrClosed):
			return 0, err
		default:
			s.pauseIndexing(ctx, err)
			return reached, nil
		}
	}
}

// indexBehind returns a step that indexes the events after a position, all in the same block.
func (s *Store) indexBehind(ctx context.Context, reached int64) (*indexStep, error) {
	b := indexBatch{from: reached, tally: store.Tally{}}
	for p, err := range s.EventsAfter(ctx, store.TailQuery{After: reached, Limit: maxIndexBatch}) {
		if err != nil {
			return nil, err
		}
		if b.events > 0 && blockOf(p.Position) != blockOf(b.to) {
			break
		}
		b.add(p)
	}
	if b.events == 0 { // all of them have been removed
		return nil, fmt.Errorf("%w: no event after position %d", store.ErrConflict, reached)
	}
	err := s.read(ctx, "figures of decisions", func(ctx context.Context) error {
		const query = `SELECT figures FROM decision_times WHERE block = ?`
		err := s.poolFor(ctx).QueryRowContext(ctx, query, blockOf(b.to)).Scan(&b.oldFigures)
		if err == nil && !rows.AddFigures(b.tally, b.oldFigures) {
			b.oldFigures, b.tally = nil, nil // the block is not counted yet
		}
		if errors.Is(err, sql.ErrNoRows) {
			return nil // the block begins here
		}
		return err
	})
	if err == nil {
		b.figures, err = rows.EncodeFigures(b.tally)
	}
	return &indexStep{b.size + len(b.figures), b.apply}, err
}

type indexBatch struct {
	from, to   int64
	events     int // events read
	entries    []indexEntry
	times      span // in nanoseconds, both ends inclusive
	tally      store.Tally
	oldFigures []byte // the block's figures before this batch
	figures    []byte // the block's figures with this batch
	size       int
}

type indexEntry struct {
	pos   int64
	terms string
}

func (b *indexBatch) add(p store.PlacedEvent) {
	at := p.Event.Time.UnixNano()
	if b.events == 0 {
		b.times = span{at, at}
	}
	b.times = span{min(b.times.from, at), max(b.times.to, at)}
	b.to = p.Position
	b.events++
	if terms := store.DecisionTerms(p.Event, p.Owner); len(terms) > 0 {
		entry := indexEntry{p.Position, strings.Join(terms, " ")}
		b.entries = append(b.entries, entry)
		b.size += len(entry.terms)
		b.tally.Add(store.FiguresOf(p.Event, p.Owner))
	}
}

func (b *indexBatch) apply(st *statements) error {
	overtaken := fmt.Errorf("%w: the index of decisions is not at position %d", store.ErrConflict, b.from)
	if err := st.execOne(overtaken, st.moveIndex, b.to, b.from, b.events); err != nil {
		return err
	}
	for _, e := range b.entries { // row by row: FTS5 writes after every row of a statement that may fail halfway
		if err := st.exec(st.addTerms, e.pos, e.terms); err != nil {
			return err
		}
	}
	return st.exec(st.addTimes, blockOf(b.to), b.times.from, b.times.to, b.figures, b.oldFigures)
}
