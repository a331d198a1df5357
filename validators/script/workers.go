package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

var errClosed = errors.New("the pool is closed")

// workerSet is a set of workers with its own queue.
type workerSet struct {
	queue    *fairshare.Queue
	name     string // of its processes
	size     int    // target number of workers; after a script has killed one, one more is kept as a spare
	mu       sync.Mutex
	idle     []*process // most recently used last
	count    int        // processes, idle and leased
	warming  bool
	idleTime time.Duration // how long an idle worker is kept
	last     time.Duration // how long the last idle worker is kept
	looking  bool          // a timer for ending idle workers is set
}

// leaseWorker waits in the caller's line for a worker. release ends the lease.
func (p *Pool) leaseWorker(ctx context.Context, l *workerSet, caller string) (w *process, release func(), err error) {
	release, err = p.waitInLine(ctx, l, caller)
	if err != nil {
		return nil, nil, err
	}
	if w, err = p.takeWorker(ctx, l); err != nil {
		release()
		return nil, nil, err
	}
	return w, release, nil
}

// takeWorker takes an idle worker or starts one.
func (p *Pool) takeWorker(ctx context.Context, l *workerSet) (*process, error) {
	for w := l.popIdle(); w != nil; w = l.popIdle() {
		select {
		case <-w.exited: // killed from outside while idle
			p.recordDeath(l, w, w.awaitExit(vanished), nil, offender{})
		default:
			return w, nil
		}
	}
	w, err := p.startWorker(ctx, l)
	switch {
	case err == nil:
		return w, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// waitInLine waits in the caller's line. The error wraps ErrUnavailable or is ctx's.
func (p *Pool) waitInLine(ctx context.Context, l *workerSet, caller string) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if release, ok := l.queue.TryAcquire(caller); ok {
		return release, nil
	}
	began := time.Now()
	release, err = l.queue.Acquire(ctx, caller)
	waited := time.Since(began)
	p.stats.addQueueTime(waited)
	MeterOf(ctx).addWaited(waited)
	switch {
	case err == nil:
		return release, nil
	case errors.Is(err, fairshare.ErrBusy), errors.Is(err, fairshare.ErrLate):
		p.stats.add(&p.stats.Refused, 1)
		return nil, fmt.Errorf("%w: %w; try again in a moment", ErrUnavailable, err)
	case errors.Is(err, fairshare.ErrClosed):
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
	}
	return nil, ctx.Err()
}

func (s *workerSet) popIdle() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	w := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	return w
}

// returnWorker returns a worker to the set, or discards it if it is leaving or due for recycling.
func (p *Pool) returnWorker(l *workerSet, w *process) {
	if w.leaving || w.calls >= p.cfg.Recycle {
		p.stats.add(&p.stats.Recycled, 1)
		w.kill(discarded)
		p.discardWorker(l, w)
	} else {
		p.addIdle(l, w)
	}
}

func (p *Pool) addIdle(l *workerSet, w *process) {
	w.idleSince = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, w)
	if !l.looking {
		l.looking = true
		time.AfterFunc(l.idleTime, func() { p.endIdle(l) })
	}
}

// endIdle ends the workers that have been idle for too long, and sets a timer for the next ones.
func (p *Pool) endIdle(l *workerSet) {
	if p.beginCall() != nil {
		return // Close ends all of them
	}
	defer p.tasks.Done()
	for {
		w, next := l.popOverdue()
		if w == nil {
			if next > 0 {
				time.AfterFunc(next, func() { p.endIdle(l) })
			}
			return
		}
		w.kill(discarded)
		p.discardWorker(l, w)
	}
}

// popOverdue removes the longest idle worker if its time is up. Otherwise it returns the delay until the next
// check, or 0 if no worker is idle; then the next addIdle sets a timer.
func (s *workerSet) popOverdue() (w *process, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		s.looking = false
		return nil, 0
	}
	stays := s.idleTime
	if len(s.idle) == 1 {
		stays = s.last
	}
	if next = stays - time.Since(s.idle[0].idleSince); next > 0 {
		return nil, min(next, s.idleTime) // by then there may be another idle worker
	}
	w = s.idle[0]
	s.idle = slices.Delete(s.idle, 0, 1)
	return w, 0
}

// warmUp starts a worker in the background, unless one is starting or there are enough.
func (p *Pool) warmUp(l *workerSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.warming || l.count > l.size {
		return
	}
	l.warming = true
	p.tasks.Go(func() {
		w, err := p.startWorker(p.life, l)
		l.mu.Lock()
		l.warming = false
		l.mu.Unlock()
		if err == nil {
			p.addIdle(l, w)
		} else if p.life.Err() == nil {
			p.cfg.Logger.Warn("script worker did not start", slog.Any("error", err))
		}
	})
}

// startWorker starts a worker. The start counts toward the caller's time, which ctx limits.
func (p *Pool) startWorker(ctx context.Context, l *workerSet) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	w, err := startProcess(ctx, p.path, l.name, p.setup, p.cfg.Start, p.stats.recordMemory)
	if errors.Is(err, io.EOF) && ctx.Err() == nil {
		// The process ended before its greeting. The cause may be a brief lack of processes or memory, so
		// try again. A program that is not a worker fails again.
		w, err = startProcess(ctx, p.path, l.name, p.setup, p.cfg.Start, p.stats.recordMemory)
	}
	switch {
	case p.life.Err() != nil && w == nil:
		return nil, errClosed
	case err != nil:
		return nil, err
	}
	p.stats.add(&p.stats.Starts, 1)
	l.mu.Lock()
	l.count++
	l.mu.Unlock()
	p.mu.Lock()
	p.procs[w] = struct{}{}
	closed := p.closed
	p.mu.Unlock()
	if closed {
		w.kill(discarded)
		p.discardWorker(l, w)
		return nil, errClosed
	}
	if len(w.unhardened) > 0 {
		p.warnOnce.Do(func() {
			p.cfg.Logger.Warn("script workers run without some protections", slog.Any("missing", w.unhardened))
		})
	}
	return w, nil
}

// recordDeath counts, logs and forgets a dead worker.
func (p *Pool) recordDeath(l *workerSet, w *process, why exitReason, err error, who offender) {
	switch why {
	case outOfTime:
		p.stats.add(&p.stats.Kills, 1)
	case outOfMemory, garbled, crashed, vanished:
		p.stats.add(&p.stats.Deaths, 1)
		p.cfg.Logger.Warn("script worker died", slog.String("cause", why.String()), who.logAttr(),
			slog.String("status", w.cmd.ProcessState.String()), slog.String("printed", w.lastOutput), slog.Any("error", err))
	}
	p.discardWorker(l, w)
}

// discardWorker waits for a worker to exit after it was killed, and forgets it.
func (p *Pool) discardWorker(l *workerSet, w *process) {
	<-w.exited
	w.closePipes()
	l.mu.Lock()
	l.count--
	l.mu.Unlock()
	p.mu.Lock()
	delete(p.procs, w)
	p.mu.Unlock()
}
