package sqlitestore

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

// The index of decisions, and the figures that are counted with it, are behind the events. A
// goroutine brings them up in transactions of the writer that are short, because others wait
// for it meanwhile (decision 0061). A search that finds them far behind does the same, for a
// bounded time.
const (
	// indexedAtOnce is how many events one transaction indexes.
	indexedAtOnce = 256
	// unindexed is how many events a search rather looks through than indexes.
	unindexed = 256
	// indexFor is how long one search indexes before it looks through what is left, from
	// the newest: the first search of a large store must not take a minute.
	indexFor = 3 * time.Second
	// indexPatience is how long a search waits for the writer.
	indexPatience = time.Second
	// indexAgain is how long nothing is indexed after the index could not be written.
	indexAgain = 10 * time.Second
	// indexPause is how long less than indexedAtOnce events wait to be indexed.
	indexPause = 2 * time.Second
	// indexRests is how many times as long as a step took the next one waits while others write.
	indexRests = 15
)

// indexer is the goroutine that indexes, and what it is told.
type indexer struct {
	due     chan struct{} // one place: something was committed
	many    chan struct{} // one place: a batch or more was
	behind  atomic.Int64  // events that are not indexed, as far as this process knows
	cancel  context.CancelFunc
	stopped chan struct{}
}

// startIndexer begins with what was left by whoever had the store open before.
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
			x.rest(ctx, pause, x.many)
			for few := true; s.runStep(ctx, few); {
				few = false
			}
		}
	}()
}

// rest waits for a time, or until it is woken.
func (x *indexer) rest(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// stop ends the goroutine, after the transaction in progress.
func (x *indexer) stop() {
	if x != nil {
		x.cancel()
		<-x.stopped
	}
}

// tell says that events were committed.
func (x *indexer) tell(events int) {
	if x == nil || events == 0 {
		return
	}
	signalOnce(x.due)
	if x.behind.Add(int64(events)) >= indexedAtOnce {
		signalOnce(x.many)
	}
}

// signalOnce fills the one place of a channel, unless it is full.
func signalOnce(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runStep indexes one batch, a full one unless it may be of few, or counts one block, and rests.
// It reports whether there may be more to do now.
func (s *Store) runStep(ctx context.Context, few bool) bool {
	began, writes := time.Now(), s.writer.writes.Load()
	reached, last, err := s.indexPosition(ctx)
	s.indexer.behind.Store(last - reached)
	if behind := last - reached; err == nil && !few && behind > 0 && behind < indexedAtOnce { // in a while
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
	case ctx.Err() != nil, errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrConflict): // another process does the same
		return false
	case err != nil:
		s.pauseIndexing(ctx, err)
		s.indexer.rest(ctx, indexAgain, nil)
		return false
	case step == nil:
		return false
	case s.writer.writes.Load() > writes+1:
		rest = indexRests * time.Since(began)
	}
	s.indexer.rest(ctx, rest, nil)
	return true
}

// indexStep is one transaction of the index. What others do to what it was made of makes it a
// store.ErrConflict, or leaves a block to be counted later.
type indexStep struct {
	size  int
	apply func(*statements) error
}

// nextStep is the next one, nil where nothing is left to do.
func (s *Store) nextStep(ctx context.Context, reached, last int64) (*indexStep, error) {
	if last > reached {
		return s.indexBehind(ctx, reached)
	}
	return s.countBlock(ctx, reached)
}

func (s *Store) applyStep(ctx context.Context, step *indexStep) error {
	ctx, cancel := context.WithTimeout(ctx, indexPatience)
	defer cancel()
	return s.write(ctx, step.size, "index decisions", step.apply)
}

// indexPosition is how far the index is, and the position of the newest event.
func (s *Store) indexPosition(ctx context.Context) (reached, last int64, err error) {
	err = s.read(ctx, "the index of decisions", func(ctx context.Context) error {
		const query = `SELECT pos, max(pos, (SELECT coalesce(max(pos), 0) FROM events)) FROM decision_index`
		return s.poolFor(ctx).QueryRowContext(ctx, query).Scan(&reached, &last)
	})
	return reached, last, err
}

// pauseIndexing says why the index cannot be written, and has searches leave it alone for a while.
func (s *Store) pauseIndexing(ctx context.Context, err error) {
	s.indexAfter.Store(time.Now().Add(indexAgain).UnixNano())
	s.log.WarnContext(ctx, "the index of decisions cannot be written; searches are slower", "cause", err.Error())
}

// updateIndex brings the index towards the events that are there now, all but the newest few,
// for a bounded time, and returns the position that it has reached. Where nothing can be
// written it stays where it is, and the search looks through more.
func (s *Store) updateIndex(ctx context.Context) (reached int64, err error) {
	newest, until := int64(-1), time.Now().Add(s.indexFor)
	for {
		reached, last, err := s.indexPosition(ctx)
		if err != nil {
			return 0, err
		}
		if newest < 0 {
			newest = last // what is committed while this indexes is not its affair
		} else if time.Now().After(until) {
			return reached, nil
		}
		if newest-reached <= unindexed || s.writer == nil || time.Now().UnixNano() < s.indexAfter.Load() {
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

// indexBehind indexes events behind a position, all of one block.
func (s *Store) indexBehind(ctx context.Context, reached int64) (*indexStep, error) {
	b := indexBatch{from: reached, tally: store.Tally{}}
	for p, err := range s.EventsAfter(ctx, store.TailQuery{After: reached, Limit: indexedAtOnce}) {
		if err != nil {
			return nil, err
		}
		if b.events > 0 && blockOf(p.Position) != blockOf(b.to) {
			break
		}
		b.add(p)
	}
	if b.events == 0 { // all of them were removed meanwhile
		return nil, fmt.Errorf("%w: nothing is behind position %d", store.ErrConflict, reached)
	}
	err := s.read(ctx, "figures of decisions", func(ctx context.Context) error {
		const query = `SELECT figures FROM decision_times WHERE block = ?`
		err := s.poolFor(ctx).QueryRowContext(ctx, query, blockOf(b.to)).Scan(&b.was)
		if err == nil && !rows.AddFigures(b.tally, b.was) {
			b.was, b.tally = nil, nil // the block is not counted
		}
		if errors.Is(err, sql.ErrNoRows) {
			return nil // it begins here
		}
		return err
	})
	if err == nil {
		b.figures, err = rows.EncodeFigures(b.tally)
	}
	return &indexStep{b.size + len(b.figures), b.apply}, err
}

type indexBatch struct {
	from, to int64
	events   int // that were read
	entries  []indexEntry
	times    span // in nanoseconds, both ends included
	tally    store.Tally
	was      []byte // figures of the block before
	figures  []byte // and with the batch
	size     int
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
	for _, e := range b.entries { // one row each: what could fail halfway makes FTS5 write after every row
		if err := st.exec(st.addTerms, e.pos, e.terms); err != nil {
			return err
		}
	}
	return st.exec(st.addTimes, blockOf(b.to), b.times.from, b.times.to, b.figures, b.was)
}
