package script

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

var _ Runner = (*Pool)(nil)

// Pool evaluates scripts in worker processes. It is safe for concurrent use. A
// Pool must be closed.
type Pool struct {
	cfg        Config
	path       string
	setup      Setup
	quarantine *quarantine
	proven     proven
	stats      counters
	eval       lane // Run
	check      lane // Check: a registration never delays a decision

	life   context.Context //nolint:containedctx // ends with Close, which has no other way to reach calls in flight
	end    context.CancelFunc
	mu     sync.Mutex
	closed bool
	procs  map[*process]struct{}
	tasks  sync.WaitGroup // starts, reapers and calls in flight
	told   sync.Once
}

// lane is a set of workers with a queue of its own.
type lane struct {
	queue   *queue
	size    int // workers wanted; one more is kept warm once a script has killed one
	mu      sync.Mutex
	idle    []*process // most recently used last
	count   int        // processes, idle and leased
	warming bool
}

// NewPool makes a pool. It starts no process unless cfg.Warm is set. The error
// names every setting that cannot work.
func NewPool(cfg Config) (*Pool, error) {
	if len(os.Args) > 0 && os.Args[0] == WorkerName {
		return nil, errors.New("script: this process was started as a worker, but its main (or TestMain) does not begin with worker.Main()")
	}
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	path, err := workerPath(cfg.WorkerPath)
	if err != nil {
		return nil, err
	}
	p := &Pool{
		cfg: cfg, path: path, quarantine: newQuarantine(cfg), procs: map[*process]struct{}{},
		proven: proven{seed: maphash.MakeSeed()},
		setup: Setup{
			Version: Version, Soft: cfg.Soft, Hard: cfg.Hard,
			ScriptMemory: cfg.ScriptMemory, WorkerMemory: cfg.WorkerMemory,
			MaxRequest: 3*cfg.MaxInput + cfg.MaxScripts*(cfg.MaxSource+16) + 256,
		},
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.eval.queue = newQueue(cfg.Workers, cfg.Queue, p.share)
	p.check.queue = newQueue(1, cfg.Queue, func(string) int { return 1 })
	p.eval.size, p.check.size = cfg.Workers, 1
	if cfg.Warm {
		p.warm(&p.eval)
	}
	return p, nil
}

// share is how many workers an owner may use at once: all but one, once a script
// of theirs has got a worker killed lately.
func (p *Pool) share(owner string) int {
	if p.quarantine.suspect(owner) {
		return max(1, p.cfg.Workers-1)
	}
	return p.cfg.Workers
}

// warm starts a worker in the background, unless that is under way or there are
// more than enough.
func (p *Pool) warm(l *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.warming || l.count > l.size {
		return
	}
	l.warming = true
	p.tasks.Go(func() {
		w, err := p.start(p.life, l)
		l.mu.Lock()
		l.warming = false
		l.mu.Unlock()
		if err == nil {
			l.putBack(w)
		} else if p.life.Err() == nil {
			p.cfg.Logger.Warn("script worker did not start", slog.Any("error", err))
		}
	})
}

// Run evaluates a batch: routes in order until one is true, then all validators.
// The error wraps ErrUnavailable (retry later), ErrInput (the batch itself is
// wrong) or is ctx's.
func (p *Pool) Run(ctx context.Context, b Batch) (Reply, error) {
	err := errors.Join(
		checkInput("data", b.Data, p.cfg.MaxInput),
		checkInput("context", b.Context, p.cfg.MaxInput),
		checkInput("evidence", b.Evidence, p.cfg.MaxInput))
	if err != nil {
		return Reply{}, err
	}
	if n := len(b.Routes) + len(b.Validators); n > p.cfg.MaxScripts {
		return Reply{}, fmt.Errorf("%w: %d scripts in one batch, more than the %d that are allowed", ErrInput, n, p.cfg.MaxScripts)
	}
	j := p.newJob(OpRun, b.Owner, b.Routes, b.Validators)
	if b.Now.IsZero() {
		b.Now = p.cfg.Now()
	}
	j.request.Now, j.request.Seed = b.Now.UnixNano(), b.Seed
	j.request.Data, j.request.Context, j.request.Evidence = b.Data, b.Context, b.Evidence
	unhardened, err := p.do(ctx, &p.eval, j)
	if err != nil {
		return Reply{}, err
	}
	reply := j.reply()
	reply.Unhardened = unhardened
	reply.Took = time.Since(j.began)
	return reply, nil
}

// Check compiles scripts and calls each once with empty objects, in a worker set
// apart for it. What a script answers to empty input does not matter; that it
// ends within its limits does. The error wraps ErrUnavailable, ErrInput or is ctx's.
func (p *Pool) Check(ctx context.Context, owner string, scripts []Script) ([]Problem, error) {
	var problems []Problem
	for part := range slices.Chunk(scripts, p.cfg.MaxScripts) {
		j := p.newJob(OpCheck, owner, nil, part)
		if _, err := p.do(ctx, &p.check, j); err != nil {
			return nil, err
		}
		for i, r := range j.results {
			if r.Code == OK || r.Code == Threw || r.Code == BadResult {
				continue
			}
			problem := Problem{Name: r.Name, Message: r.Detail}
			if j.where != nil {
				problem.Line, problem.Column = j.where[i].line, j.where[i].column
			}
			problems = append(problems, problem)
		}
	}
	return problems, nil
}

// do asks workers until nothing about the job is undecided.
func (p *Pool) do(ctx context.Context, l *lane, j *job) (unhardened []string, err error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.tasks.Done()
	p.stats.calls.Add(1)
	for j.next() {
		if j.overdue() {
			continue
		}
		if unhardened, err = p.trip(ctx, l, j); err != nil {
			return nil, err
		}
	}
	if j.badInput != "" {
		return nil, fmt.Errorf("%w: %s", ErrInput, j.badInput)
	}
	return unhardened, nil
}

// trip asks one worker once.
func (p *Pool) trip(ctx context.Context, l *lane, j *job) ([]string, error) {
	w, err := p.lease(ctx, l, j.owner)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	why, cause := w.ask(ctx, &j.request, p.cfg.Hard, j.accept)
	j.spent += time.Since(began)
	p.stats.scripts.Add(uint64(j.reached)) //nolint:gosec // a count
	if why == alive {
		p.giveBack(l, w, j.owner)
		if j.badInput != "" {
			return nil, fmt.Errorf("%w: %s", ErrInput, j.badInput)
		}
		return w.unhardened, nil
	}
	p.bury(l, w, why, cause, j.owner)
	l.queue.release(j.owner)
	switch why {
	case cancelled:
		return nil, ctx.Err()
	case discarded:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
	}
	p.warm(l) // the next one to lose a worker shall not wait for its successor
	return w.unhardened, j.died(why, cause)
}

// enter registers a call, so that Close can wait for it.
func (p *Pool) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
	}
	p.tasks.Add(1)
	return nil
}

// lease waits for the owner's turn and takes a worker, starting one if need be.
func (p *Pool) lease(ctx context.Context, l *lane, owner string) (*process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	began := time.Now()
	err := l.queue.acquire(ctx, owner)
	p.stats.queueTime.Add(int64(time.Since(began)))
	switch {
	case errors.Is(err, errBusy):
		p.stats.refused.Add(1)
		return nil, fmt.Errorf("%w: %w; try again in a moment", ErrUnavailable, err)
	case errors.Is(err, errClosed):
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil:
		return nil, err
	}
	for {
		w := l.pop()
		if w == nil {
			break
		}
		select {
		case <-w.exited: // somebody killed it while it had nothing to do
			p.bury(l, w, w.buried(vanished), nil, "")
		default:
			return w, nil
		}
	}
	w, err := p.start(ctx, l)
	if err != nil {
		l.queue.release(owner)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return w, nil
}

func (l *lane) pop() *process {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.idle) == 0 {
		return nil
	}
	w := l.idle[len(l.idle)-1]
	l.idle = l.idle[:len(l.idle)-1]
	return w
}

// giveBack returns a worker that answered, or replaces it when it is due.
func (p *Pool) giveBack(l *lane, w *process, owner string) {
	if w.leaving || w.calls >= p.cfg.Recycle {
		p.stats.recycled.Add(1)
		w.kill(discarded)
		p.discard(l, w)
	} else {
		l.putBack(w)
	}
	l.queue.release(owner)
}

func (l *lane) putBack(w *process) {
	l.mu.Lock()
	l.idle = append(l.idle, w)
	l.mu.Unlock()
}

// start starts a worker. It is the callers' time: ctx bounds it.
func (p *Pool) start(ctx context.Context, l *lane) (*process, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	w, err := startProcess(ctx, p.path, p.setup, p.cfg.Start)
	switch {
	case p.life.Err() != nil && w == nil:
		return nil, errClosed
	case err != nil:
		return nil, err
	}
	w.saw = p.stats.saw
	p.stats.starts.Add(1)
	p.stats.workers.Add(1)
	l.mu.Lock()
	l.count++
	l.mu.Unlock()
	p.mu.Lock()
	p.procs[w] = struct{}{}
	closed := p.closed
	p.mu.Unlock()
	if closed {
		w.kill(discarded)
		p.discard(l, w)
		return nil, errClosed
	}
	if len(w.unhardened) > 0 {
		p.told.Do(func() {
			p.cfg.Logger.Warn("script workers run without some protections", slog.Any("missing", w.unhardened))
		})
	}
	return w, nil
}

// bury takes a dead worker off the books.
func (p *Pool) bury(l *lane, w *process, why cause, err error, owner string) {
	switch why {
	case outOfTime:
		p.stats.kills.Add(1)
	case outOfSpace, garbled, crashed, vanished:
		p.stats.deaths.Add(1)
		p.cfg.Logger.Warn("script worker died", slog.String("cause", why.String()), slog.String("owner", owner),
			slog.String("status", w.cmd.ProcessState.String()), slog.String("printed", w.words), slog.Any("error", err))
	}
	p.discard(l, w)
}

// discard waits for a worker that was told to end, and forgets it.
func (p *Pool) discard(l *lane, w *process) {
	<-w.exited
	w.release()
	p.stats.workers.Add(-1)
	l.mu.Lock()
	l.count--
	l.mu.Unlock()
	p.mu.Lock()
	delete(p.procs, w)
	p.mu.Unlock()
}

// strike charges a script and its owner with the loss of a worker.
func (p *Pool) strike(owner string, s Script, why string) {
	if p.quarantine.strike(owner, s) {
		p.cfg.Logger.Warn("script quarantined", slog.String("owner", owner), slog.String("script", s.Name), slog.String("cause", why))
	}
}

// ResetQuarantine forgives an owner and all their scripts: an operator's way out.
func (p *Pool) ResetQuarantine(owner string) { p.quarantine.reset(owner) }

// Close kills all workers, waits until they are reaped and until calls in flight
// have returned ErrUnavailable. It may be called more than once.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	procs := make([]*process, 0, len(p.procs))
	for w := range p.procs {
		procs = append(procs, w)
	}
	p.mu.Unlock()
	p.end()
	p.eval.queue.close()
	p.check.queue.close()
	for _, w := range procs {
		w.kill(discarded)
	}
	p.tasks.Wait()
	for _, l := range []*lane{&p.eval, &p.check} {
		for w := l.pop(); w != nil; w = l.pop() {
			w.kill(discarded)
			p.discard(l, w)
		}
	}
	return nil
}
